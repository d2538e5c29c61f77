// The first view: the figures of the server and its tubes.
import { cards, count, duration, heads, make, rate, whole } from "./figures.js";
import { definitions, pager, replace, spark, tubeLink } from "./widgets.js";

const PAGE = 100, SPARKS = 60;
/* A rate over a shorter time would jump: the page asks again after each key in the search, and after each action. */
const MIN_SAMPLE_MS = 1500;
const COLUMNS = [
  ["name", "Tube", "left"], ["current-jobs-ready", "Ready"], ["current-jobs-reserved", "Reserved", "wide"],
  ["current-jobs-delayed", "Delayed", "wide"], ["current-jobs-buried", "Buried"], ["total-jobs", "Put/s", "wide"],
  ["cmd-delete", "Deleted/s", "wide"], ["oldest-ready-age", "Oldest ready"], ["current-waiting", "Waiting", "wide"],
  ["pause-time-left", "Pause", "wide"], [null, "Ready, recent", "wide"],
];

/* The last samples of tubes, for rates and small plots. If there are many, those not shown for a minute are removed. */
const seen = new Map();

function note(tubes) {
  const now = performance.now();
  for (const tube of tubes) {
    const old = seen.get(tube.name);
    if (old && now - old.at < MIN_SAMPLE_MS) continue;
    const per = (key) => old ? Math.max(0, tube[key] - old.tube[key]) * 1000 / (now - old.at) : null;
    const recent = [...(old?.recent ?? []), tube["current-jobs-ready"]].slice(-SPARKS);
    seen.set(tube.name, { at: now, tube, recent, puts: per("total-jobs"), deletes: per("cmd-delete") });
  }
  if (seen.size > 5000) for (const [name, { at }] of seen) if (now - at > 60000) seen.delete(name);
}

function cell(tube, key) {
  const { recent, puts, deletes } = seen.get(tube.name);
  const value = tube[key];
  switch (key) {
    case null: return [spark(recent, "ready"), false];
    case "total-jobs": return puts === null ? ["–", true] : [rate(puts), puts === 0];
    case "cmd-delete": return deletes === null ? ["–", true] : [rate(deletes), deletes === 0];
    case "pause-time-left": return tube.pause ? [duration(value), false] : ["–", true];
    case "oldest-ready-age": return tube["current-jobs-ready"] ? [duration(value), false] : ["–", true];
    default: return [count(value), value === 0];
  }
}

function row(tube) {
  return make("tr", {}, COLUMNS.map(([key, , where = ""]) => {
    if (key === "name") {
      return make("td", { class: "name left" },
        make("a", { href: tubeLink(tube.name), title: tube.name, "data-key": `tube-${tube.name}` }, tube.name));
    }
    const [content, isNothing] = cell(tube, key);
    const alarm = key === "current-jobs-buried" && !isNothing ? "alarm" : "";
    return make("td", { class: [where, isNothing ? "zero" : alarm].join(" ") }, content);
  }));
}

export function overview({ main, changed, read }) {
  /* Tubes with buried jobs come first, because buried jobs need an operator. */
  let sorting = { key: "current-jobs-buried", up: false }, search = "";
  const pages = pager(changed);
  const plots = cards();
  const states = make("section", { class: "grid", "aria-label": "Jobs by state" }, plots.states);
  const rates = make("section", { class: "grid", "aria-label": "Rates of the last ten minutes" }, plots.rates);
  const about = make("section", { "aria-label": "About the server" });
  const title = make("h2", {}, "Tubes");
  const found = make("span", { class: "faint" });
  /* Escape empties the field with the event "search" alone. */
  const changedSearch = () => { search = field.value.trim(); pages.restart(); changed(); };
  const field = make("input", {
    type: "search", id: "search", placeholder: "Search tubes: text or mail-*", "aria-label": "Search tubes",
    oninput: changedSearch, onsearch: changedSearch,
  });
  const head = make("tr"), body = make("tbody");
  const empty = make("div", { class: "empty", hidden: true }, "No tube matches.");
  replace(main, states,
    make("div", { class: "row space" }, title, field, found, pages.box),
    make("div", { class: "card scroll" },
      make("table", { "aria-label": "Tubes" }, make("thead", {}, head), body), empty),
    make("h2", {}, "Rates of the last ten minutes"), rates, make("h2", {}, "Server"), about);

  function showHead() {
    replace(head, heads(COLUMNS, sorting, (chosen) => {
      sorting = chosen;
      pages.restart();
      showHead();
      changed();
    }));
  }

  async function list() {
    const answer = await read("tubes", {
      sort: sorting.key, order: sorting.up ? "ascending" : "descending", search, limit: PAGE, cursor: pages.cursor(),
    });
    if (!pages.show(answer.next)) return;
    note(answer.tubes);
    title.textContent = `Tubes (${whole.format(answer.total)})`;
    const first = pages.number() * PAGE;
    found.textContent = [
      search && `${whole.format(answer.matched)} found`,
      answer.matched > PAGE && answer.tubes.length
        && `${whole.format(first + 1)} to ${whole.format(first + answer.tubes.length)}`,
    ].filter(Boolean).join(", ");
    empty.hidden = answer.tubes.length > 0;
    replace(body, answer.tubes.map(row));
  }

  async function refresh(server) {
    plots.show(server);
    const { stats } = server;
    const connections = whole.format(stats["current-connections"]);
    const binlog = stats["binlog-state"] === "off" ? "none: jobs are in memory only" : stats["binlog-state"];
    replace(about, definitions([
      ["version", stats.version], ["up for", duration(stats.uptime)],
      ["connected", make("a", { href: "#/clients", "data-key": "clients" }, connections)],
      ["producers", whole.format(stats["current-producers"])], ["workers", whole.format(stats["current-workers"])],
      ["waiting in a reserve", whole.format(stats["current-waiting"])], ["binlog", binlog],
      ["largest job", `${whole.format(stats["max-job-size"])} bytes`]]));
    await list();
  }
  showHead();
  return { refresh, title: "Tubes", search: field };
}
