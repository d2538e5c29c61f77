// The actions on jobs, tubes and the server: each asks for confirmation, sends a request and shows the result.
import { STATES, at, count, make } from "./figures.js";
import { bytesOf, jobs, tagsOf, tubePath } from "./widgets.js";
import { Refused, blob, notice, post, watch } from "./api.js";

/* The API reads no longer request. */
const MAX_REQUEST_BYTES = 262144;

/* Grows when all questions are cancelled. */
let cancelled = 0;

/** Cancels the question that is open, and the questions that wait behind it. */
export function cancelQuestions() {
  cancelled += 1;
  at("dialog").close();
}

/** Opens a dialog. Resolves to the values of its fields, or to null if it was cancelled. */
async function ask({ title, text, fields = [], label, danger = false, wrong = null }) {
  const box = at("dialog");
  /* A question that comes later, such as one that needs a count, does not replace the one that a person reads. */
  const before = cancelled;
  while (box.open) await new Promise((resume) => box.addEventListener("close", resume, { once: true }));
  if (cancelled !== before) return null;
  return new Promise((resume) => {
    const inputs = fields.map(({
      name, title: caption, kind = "text", value = "", required = true, hint, small, min = 0,
    }) => {
      const input = make(kind === "area" ? "textarea" : "input", {
        name, value, required, placeholder: hint ?? "",
        ...(kind === "area" ? {} : { type: kind === "seconds" ? "number" : kind }),
        ...(kind === "number" ? { min, max: 4294967295, step: 1 } : {}),
        ...(kind === "seconds" ? { min, max: 4294967295.999, step: 0.001 } : {}),
        autocomplete: "off", spellcheck: false,
      });
      return { name, input, small, field: make("label", { class: "field" }, caption, input) };
    });
    let result = null;
    const form = make("form", {
      onsubmit: (event) => {
        event.preventDefault();
        result = Object.fromEntries(inputs.map(({ name, input }) =>
          [name, input.type !== "number" ? input.value : input.value === "" ? undefined : Number(input.value)]));
        box.close();
      },
    },
    make("h2", { id: "dialog-title" }, title),
    text ? make("p", { class: "faint" }, text) : null,
    wrong ? make("p", { class: "wrong", role: "alert" }, wrong) : null,
    inputs.filter(({ small }) => !small).map(({ field }) => field),
    inputs.some(({ small }) => small)
      ? make("div", { class: "inline" }, inputs.filter(({ small }) => small).map(({ field }) => field)) : null,
    make("div", { class: "row" },
      make("button", { type: "button", onclick: () => box.close() }, "Cancel"),
      make("button", { type: "submit", class: danger ? "main danger" : "main", autofocus: !fields.length }, label)));
    box.addEventListener("close", () => resume(result), { once: true });
    box.replaceChildren(form);
    box.showModal();
  });
}

/**
 * Sends a request, shows the result in `message` or in the progress of its task, and refreshes the view. Calls `begun`
 * when the server has the request.
 */
async function send(path, body, refresh, message, begun) {
  try {
    const task = await post(path, body);
    begun?.();
    refresh();
    if (message) notice(message);
    else await watch(task, refresh);
    return task;
  } catch (error) {
    notice(error.message, "bad");
    refresh();
    return null;
  }
}

/* What a change is called and asks for, and the states of jobs in which it is possible. */
const CHANGES = {
  kick: { name: "Kick", verb: "Kick", states: ["delayed", "buried"], text: "The jobs become ready." },
  delete: {
    name: "Delete", verb: "Delete", states: STATES, danger: true,
    text: "This cannot be undone. Clients lose the jobs that they have reserved.",
  },
  move: {
    name: "Move…", verb: "Move", states: ["ready", "delayed", "buried"],
    fields: [{ name: "to", title: "To the tube" }], text: "The jobs keep their state.",
  },
  priority: {
    name: "Priority…", verb: "Change the priority of", states: ["ready", "delayed", "buried"],
    fields: [{ name: "priority", title: "Priority (0 is the most urgent)", kind: "number", value: 0 }],
  },
  delay: {
    name: "Delay…", verb: "Change the delay of", states: ["ready", "delayed"],
    fields: [{ name: "delay", title: "Seconds from now (0: ready at once)", kind: "seconds", value: 0 }],
  },
  redrive: {
    name: "Send back…", verb: "Send back", states: ["ready", "delayed", "buried"],
    text: "The jobs go to the tubes that they came from, and have no failures any more.",
    fields: [{
      name: "rate", title: "At most this many a second", kind: "number", min: 1, required: false,
      hint: "as fast as possible",
    }],
  },
};

/** The buttons of the changes that are possible for jobs in this state; `areDead` says whether some are dead. */
export const changeButtons = (state, areDead, act, disabled = false) => Object.entries(CHANGES)
  .filter(([action, { states }]) => states.includes(state) && (action !== "redrive" || areDead))
  .map(([action, { name, danger }]) => make("button", {
    class: danger ? "danger" : "", disabled, "data-key": `change-${action}`, onclick: () => act(action),
  }, name));

async function question(action, what, detail) {
  const { verb, text, fields, danger } = CHANGES[action];
  return ask({
    title: `${verb} ${what}?`, text: [detail, text].filter(Boolean).join(" "), fields,
    label: `${verb.split(" ")[0]} ${what}`.slice(0, 60), danger,
  });
}

/** Changes one job. */
export async function changeJob(action, id, refresh, begun) {
  const { verb, fields, danger } = CHANGES[action];
  const text = action === "delete" ? "This cannot be undone. A client that has reserved the job loses it." : "";
  const values = await ask({ title: `${verb} job ${id}?`, text, fields, label: verb.split(" ")[0], danger });
  return values && send(`jobs/${id}/actions`, { action, ...values }, refresh, null, begun);
}

/** Changes the selected jobs. Calls `begun` when the server has the request. */
export async function changeSelected(action, ids, refresh, begun) {
  if (ids.length === 1) return changeJob(action, ids[0], refresh, begun);
  const values = await question(action, jobs(ids.length), "This changes the selected jobs.");
  return values && send("jobs/actions", { action, jobs: ids, ...values }, refresh, null, begun);
}

/**
 * Changes exactly the jobs that the filter matches: counts them, shows the number in the question, and sends the count
 * with the request. Asks nothing if the view is left before `read` has the count.
 */
export async function changeMatching(action, tube, { filter: given, words }, read, refresh) {
  const filter = action === "redrive" ? { ...given, dead: true } : given;
  let counted;
  const box = notice("Counting…", "running");
  try {
    counted = await read(`${tubePath(tube)}/jobs/count`, filter);
  } catch (error) {
    if (error.name !== "AbortError") notice(error.message, "bad");
    return null;
  } finally {
    box.remove();
  }
  if (!counted.count) {
    notice("No job matches.");
    return null;
  }
  const kind = `${filter.dead ? "dead " : ""}${filter.state} ${counted.count === 1 ? "job" : "jobs"}`;
  const values = await question(
    action, `${count(counted.count)} ${kind}`, `This changes the jobs in the tube “${tube}”${words}.`);
  const numbers = Object.fromEntries(Object.entries(filter).map(([key, value]) =>
    [key, ["state", "tag", "contains", "dead"].includes(key) ? value : Number(value)]));
  return values && send(`${tubePath(tube)}/actions`, {
    action, ...numbers, ...values, expected: counted.count, as_of: counted.as_of,
  }, refresh);
}

export const put = (tube, refresh) =>
  putLike({ title: "Put a job", tube: tube ?? "default", body: "", priority: 0, ttr: 60, tags: "" }, refresh);

/**
 * Puts a job like this one, after a person has edited it. A body that is not text is put unchanged. Asks nothing if the
 * view is left, and `signal` with it aborted, before the body has come.
 */
export async function putCopy(job, body, signal, refresh) {
  const tooLarge = () => notice("The body is too large for a request of the page: use beanstalkctl put.", "bad");
  if (job.bytes >= MAX_REQUEST_BYTES) return tooLarge();
  let data = null, encoding = "text";
  try {
    const whole = new Uint8Array(
      await (body.truncated ? (await blob(`jobs/${job.id}/body`, signal)).arrayBuffer() : bytesOf(body)));
    try {
      data = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(whole);
      /* A text field would change these line ends. */
      if (data.includes("\r")) throw new TypeError();
    } catch {
      encoding = "base64";
      data = btoa(Array.from(whole, (byte) => String.fromCharCode(byte)).join(""));
    }
  } catch (error) {
    if (!signal.aborted) notice(error.message, "bad");
    return;
  }
  if (new Blob([JSON.stringify(data)]).size >= MAX_REQUEST_BYTES) return tooLarge();
  /* With the same idp key, the copy would not be put; with the tag aft, it would wait for a group. */
  const tags = tagsOf(job).filter((tag) => !tag.startsWith("idp:") && !tag.startsWith("aft:")).join(" ");
  await putLike({
    title: `Put a copy of job ${job.id}`, tube: job.tube, body: data, encoding,
    priority: job.pri, ttr: job.ttr, tags,
  }, refresh);
}

/** Asks again, with what a person has entered, if the server refuses the job. */
async function putLike(given, refresh) {
  const { title, tube, body, encoding = "text", priority, delay = 0, ttr, wrong } = given;
  const values = await ask({
    title, label: "Put", wrong,
    text: encoding === "base64" ? "The body is not a text of lines, so it is shown in base64." : "",
    fields: [
      { name: "tube", title: "Tube", value: tube },
      {
        name: "body", title: encoding === "base64" ? "Body in base64" : "Body", kind: "area", required: false,
        value: body,
      },
      { name: "priority", title: "Priority", kind: "number", value: priority, small: true },
      { name: "delay", title: "Delay (s)", kind: "seconds", value: delay, small: true },
      { name: "ttr", title: "Time to run (s)", kind: "seconds", value: ttr, small: true },
      { name: "tags", title: "Tags", required: false, value: given.tags, hint: "idp:order-7 grp:rows exp:3600" },
    ],
  });
  if (!values) return;
  const { tube: into, tags, ...job } = values;
  try {
    const task = await post(`${tubePath(into)}/jobs`, { ...job, encoding, tags: tags.split(/\s+/).filter(Boolean) });
    notice(task.done
      ? `Job ${task.job} put into “${into}”.`
      : `Nothing was put: job ${task.job} has the same idp key.`);
  } catch (error) {
    if (error instanceof Refused) return putLike({ ...given, ...values, wrong: error.message }, refresh);
    notice(error.message, "bad");
  }
  refresh();
}

export async function pause(tube, refresh) {
  const values = await ask({
    title: `Pause “${tube}”?`, text: "No client can reserve a job of the tube during the pause.", label: "Pause",
    fields: [{ name: "seconds", title: "Length of the pause in seconds", kind: "seconds", value: 600 }],
  });
  return values && send(`${tubePath(tube)}/actions`, { action: "pause", ...values }, refresh, `“${tube}” is paused.`);
}

export const resume = (tube, refresh) =>
  send(`${tubePath(tube)}/actions`, { action: "resume" }, refresh, `The pause of “${tube}” has ended.`);

export async function flush(tube, figures, refresh) {
  const number = STATES.reduce((sum, state) => sum + figures[`current-jobs-${state}`], 0);
  const values = await ask({
    title: `Delete all ${jobs(number)} of “${tube}”?`, danger: true, label: `Delete ${jobs(number)}`,
    text: "This deletes all ready, reserved, delayed and buried jobs that are in the tube when the server begins. "
      + "It cannot be undone.",
  });
  return values && send(`${tubePath(tube)}/actions`, { action: "flush" }, refresh);
}

export async function drain(isDraining, refresh) {
  const values = await ask(isDraining
    ? { title: "End drain mode?", text: "The server will accept new jobs again.", label: "End drain mode" }
    : {
      title: "Drain the server?", text: "The server will refuse every put. All other commands still work.",
      label: "Drain", danger: true,
    });
  const done = isDraining ? "The server accepts new jobs again." : "The server is draining.";
  return values && send("server/actions", { action: isDraining ? "undrain" : "drain" }, refresh, done);
}

export async function killClient(client, refresh) {
  const who = `${client.address}${client.identity && `, ${client.identity}`}`;
  const values = await ask({
    title: `End the connection of client ${client.id}?`, danger: true, label: "End the connection",
    text: `${who}: what it has reserved (${jobs(client.reserved)}) becomes ready, or stays with its session for the `
      + "grace. A program that connects again goes on.",
  });
  const done = `The connection of client ${client.id} was closed.`;
  return values && send(`clients/${client.id}/actions`, { action: "kill" }, refresh, done);
}
