// The view of a job: its body, its history, and the actions on it.
import { bytes, duration, make, replace, whole } from "./figures.js";
import { bytesOf, definitions, tagsOf, tubeLink } from "./widgets.js";
import { blob, notice } from "./api.js";
import { changeButtons, changeJob, putCopy } from "./actions.js";

const HEX_ROW = 16, FOLLOW_S = 50;
/* Without a limit, a body of brackets would become text that grows with the square of its length. */
const MAX_INDENTED = 50;

/* What a job waits for, by the words of `stats-job`. */
const WAITS = {
  client: "the client that has reserved it", kick: "a kick", delay: "the end of its delay",
  group: "the end of its group", pause: "the end of the pause of its tube",
  key: "a slot of its con key", "max-reserved": "a slot of its tube (max-reserved)", rate: "the rate of its tube",
  turn: "its turn (fair)", worker: "a worker",
};

/** The bytes in rows of an offset, the bytes in hexadecimal, and the printable characters. */
function hex(data) {
  const rows = [];
  for (let start = 0; start < data.length; start += HEX_ROW) {
    const row = [...data.slice(start, start + HEX_ROW)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(HEX_ROW * 3 - 1);
    const text = row.map((byte) => byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·").join("");
    rows.push(`${start.toString(16).padStart(6, "0")}  ${digits}  ${text}`);
  }
  return rows.join("\n");
}

/** JSON with line breaks and indentation; numbers and strings are not changed. Throws if the text is not JSON. */
function formatted(text) {
  JSON.parse(text);
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0, out = "";
  const line = () => `\n${"  ".repeat(Math.min(depth, MAX_INDENTED))}`;
  tokens.forEach((token, i) => {
    if (token === "{" || token === "[") {
      depth++;
      out += token + (tokens[i + 1] === "}" || tokens[i + 1] === "]" ? "" : line());
    } else if (token === "}" || token === "]") {
      depth--;
      out += (tokens[i - 1] === "{" || tokens[i - 1] === "[" ? "" : line()) + token;
    } else {
      out += token === "," ? token + line() : token === ":" ? ": " : token;
    }
  });
  return out;
}

function forms(body) {
  const all = [];
  if (body.encoding === "text") {
    all.push(["Text", "text", body.data]);
    if (!body.truncated) {
      try {
        const json = formatted(body.data);
        if (/^\s*[[{]/.test(body.data)) all.unshift(["JSON", "json", json]);
      } catch {
        /* The body is not JSON. */
      }
    }
  }
  all.push(["Hex", "hex", hex(bytesOf(body))]);
  return all;
}

async function save(id) {
  try {
    const link = make("a", { href: URL.createObjectURL(await blob(`jobs/${id}/body`)), download: `job-${id}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  } catch (error) {
    notice(error.message, "bad");
  }
}

export function job({ main, changed, read, signal }, id) {
  let form = null, body = null, isFollowing = false;
  const head = make("div", { class: "row" });
  const history = make("section", { "aria-label": "History" }), content = make("section", { "aria-label": "Body" });
  const parts = [head, make("h2", {}, "Body"), content, make("h2", {}, "History"), history];
  replace(main, ...parts);

  function showBody() {
    const all = forms(body);
    form = all.some(([, kind]) => kind === form) ? form : all[0][1];
    const [, kind, text] = all.find(([, each]) => each === form);
    replace(content,
      make("div", { class: "tabs", role: "tablist", "aria-label": "Form" }, all.map(([title, each]) => make("button", {
        role: "tab", "aria-selected": String(each === form), "data-key": `form-${each}`,
        onclick: () => { form = each; showBody(); },
      }, title)), make("button", { class: "plain", "data-key": "save", onclick: () => save(id) }, "Download")),
      make("pre", { class: `card ${kind}`, tabIndex: 0, "aria-label": "Body" }, text || "(empty)"),
      body.truncated
        ? make("p", { class: "faint" }, "Only the beginning is shown; the download has the whole body.") : null);
  }

  /*
   * The answer comes as soon as the job has ended or is buried. Without one, the next refresh asks again. A tab in the
   * background does not wait: a browser has six connections to a server, for all tabs together.
   */
  async function follow() {
    const hiding = new AbortController();
    const hide = () => { if (document.hidden) hiding.abort(); };
    document.addEventListener("visibilitychange", hide);
    isFollowing = true;
    try {
      await read(`jobs/${encodeURIComponent(id)}`, { wait: FOLLOW_S }, hiding.signal);
    } catch (error) {
      if (error.status !== 404) return;
    } finally {
      isFollowing = false;
      document.removeEventListener("visibilitychange", hide);
    }
    changed();
  }

  async function refresh(server) {
    let answer;
    try {
      answer = await read(`jobs/${encodeURIComponent(id)}`);
    } catch (error) {
      if (error.status !== 404 && error.status !== 400) throw error;
      replace(main, make("h1", {}, `Job ${id}`),
        make("p", { class: "empty" }, "There is no such job: it was deleted, or never put."));
      return;
    }
    const { job: figures } = answer;
    const dead = figures["dead-from"];
    replace(head, make("h1", {}, `Job ${figures.id}`),
      make("span", { class: `pill ${figures.state}` }, figures.held ? "held" : figures.state),
      make("span", {}, "in ",
        make("a", { href: tubeLink(figures.tube, figures.state), "data-key": "tube" }, figures.tube)),
      server.read_only ? null : make("span", { class: "row end" },
        make("button", {
          "data-key": "copy", onclick: () => putCopy(figures, answer.body, signal, changed),
        }, "Put a copy…"),
        changeButtons(figures.state, Boolean(dead), (action) => changeJob(action, id, changed))));
    const tags = tagsOf(figures);
    const waits = figures["waits-for"].split(" ").map((word) => WAITS[word] ?? word);
    const session = figures.session
      && (figures.kept_for_grace ? `${figures.session}: held for the grace` : figures.session);
    const left = { delayed: "ready in", reserved: "reservation ends in" }[figures.state];
    replace(history, definitions([
      ["priority", whole.format(figures.pri)], ["age", duration(figures.age)],
      ...(left ? [[left, duration(figures["time-left"])]] : []),
      ["delay", duration(figures.delay)], ["time to run", duration(figures.ttr)], ["body", bytes(figures.bytes)],
      ["waits for", waits.join(", ")], ...(session ? [["session", session]] : []),
      ...(tags.length ? [["tags", tags.join(" ")]] : []),
      ...(figures["expires-in"] ? [["expires in", duration(figures["expires-in"])]] : []),
      ["reserved", whole.format(figures.reserves)], ["timed out", whole.format(figures.timeouts)],
      ["released", whole.format(figures.releases)],
      ["buried", whole.format(figures.buries)], ["kicked", whole.format(figures.kicks)],
      ...(figures.failures ? [["failures", whole.format(figures.failures)]] : []),
      ...(dead ? [
        ["dead, from", make("a", { href: tubeLink(dead), "data-key": "dead-from" }, dead)],
        ["dead since", new Date(figures["dead-since"] * 1000).toLocaleString()],
      ] : [])]));
    if (!isFollowing && !document.hidden && figures.state !== "buried") follow();
    /* A body never changes, but a server without a binlog gives the number to another job when it starts again. */
    if (body?.data !== answer.body.data) {
      body = answer.body;
      showBody();
    }
    if (!main.contains(head)) replace(main, ...parts);
  }
  return { refresh, title: `Job ${id}` };
}
