// What is done to jobs, tubes and the server: the question, the request, and what has become of it.
import { at, count, jobs, make, tubePath } from "./widgets.js";
import { get, notice, post, watch } from "./api.js";

/** Asks; resolves to the values of the fields, or to null. `check` may say what is wrong with them. */
function ask({ title, text, fields = [], label, danger = false }) {
  const box = at("dialog");
  return new Promise((resume) => {
    const inputs = fields.map(({ name, title: caption, kind = "text", value = "", required = true, hint, small }) => {
      const input = make(kind === "area" ? "textarea" : "input", {
        name, value, required, placeholder: hint ?? "", ...(kind === "area" ? {} : { type: kind }), ...(kind === "number" ? { min: 0, max: 4294967295, step: 1 } : {}), autocomplete: "off", spellcheck: false,
      });
      return { name, kind, input, small, field: make("label", { class: "field" }, caption, input) };
    });
    let result = null;
    const form = make("form", {
      onsubmit: (event) => {
        event.preventDefault();
        result = Object.fromEntries(inputs.map(({ name, kind, input }) => [name, kind === "number" ? Number(input.value) : input.value]));
        box.close();
      },
    },
    make("h2", { id: "dialog-title" }, title),
    text ? make("p", { class: "faint" }, text) : null,
    inputs.filter(({ small }) => !small).map(({ field }) => field),
    inputs.some(({ small }) => small) ? make("div", { class: "inline" }, inputs.filter(({ small }) => small).map(({ field }) => field)) : null,
    make("div", { class: "row" },
      make("button", { type: "button", onclick: () => box.close() }, "Cancel"),
      make("button", { type: "submit", class: danger ? "main danger" : "main", autofocus: !fields.length }, label)));
    box.addEventListener("close", () => resume(result), { once: true });
    box.replaceChildren(form);
    box.showModal();
  });
}

/** Sends a request, shows what it did, and has the view look again. */
async function send(path, body, look, said) {
  try {
    const task = await post(path, body);
    look();
    if (said) notice(said);
    else await watch(task, look);
    look();
    return task;
  } catch (error) {
    notice(error.message, "bad");
    look();
    return null;
  }
}

const CHANGES = {
  kick: { name: "Kick", verb: "Kick", text: "They become ready." },
  delete: { name: "Delete", verb: "Delete", danger: true, text: "They are gone for good. A client that holds one of them gets NOT_FOUND from then on." },
  move: { name: "Move…", verb: "Move", fields: [{ name: "to", title: "To the tube" }], text: "They keep their state." },
  priority: { name: "Priority…", verb: "Change the priority of", fields: [{ name: "priority", title: "Priority (0 is the most urgent)", kind: "number", value: 0 }] },
  delay: { name: "Delay…", verb: "Change the delay of", fields: [{ name: "delay", title: "Seconds from now (0 makes them ready)", kind: "number", value: 0 }] },
};
export const KICKABLE = { kick: ["delayed", "buried"], delete: null, move: ["ready", "delayed", "buried"], priority: ["ready", "delayed", "buried"], delay: ["ready", "delayed"] };

/** The changes that mean something for jobs in this state, as buttons. */
export const changeButtons = (state, act, disabled = false) => Object.entries(CHANGES)
  .filter(([action]) => !KICKABLE[action] || KICKABLE[action].includes(state))
  .map(([action, { name, danger }]) => make("button", { class: danger ? "danger" : "", disabled, "data-key": `change-${action}`, onclick: () => act(action) }, name));

async function question(action, what, detail) {
  const { verb, text, fields, danger } = CHANGES[action];
  return ask({ title: `${verb} ${what}?`, text: [detail, text].filter(Boolean).join(" "), fields, label: `${verb.split(" ")[0]} ${what}`.slice(0, 60), danger });
}

/** Changes one job. */
export async function changeJob(action, id, look) {
  const { verb, fields, danger } = CHANGES[action];
  const text = action === "delete" ? "It is gone for good, also for a client that holds it." : "";
  const values = await ask({ title: `${verb} job ${id}?`, text, fields, label: verb.split(" ")[0], danger });
  return values && send(`jobs/${id}/actions`, { action, ...values }, look);
}

/** Changes the jobs that are selected. */
export async function changeSelected(action, ids, look) {
  if (ids.length === 1) return changeJob(action, ids[0], look);
  const values = await question(action, jobs(ids.length), "The selected ones.");
  return values && send("jobs/actions", { action, jobs: ids, ...values }, look);
}

/** Changes exactly what the filter matches: counts, asks with the number, and gives the count back. */
export async function changeMatching(action, tube, filter, told, look) {
  let counted;
  const box = notice("Counting…", "running");
  try {
    counted = await get(`${tubePath(tube)}/jobs/count`, filter);
  } catch (error) {
    notice(error.message, "bad");
    return null;
  } finally {
    box.remove();
  }
  if (!counted.count) {
    notice("No job matches.");
    return null;
  }
  const values = await question(action, `${count(counted.count)} ${filter.state} ${counted.count === 1 ? "job" : "jobs"}`, `Of the tube “${tube}”${told}.`);
  const numbers = Object.fromEntries(Object.entries(filter).map(([key, value]) => [key, key === "state" || key === "contains" ? value : Number(value)]));
  return values && send(`${tubePath(tube)}/actions`, { action, ...numbers, ...values, expected: counted.count, as_of: counted.as_of }, look);
}

export async function put(tube, look) {
  const values = await ask({
    title: "Put a job", label: "Put",
    fields: [
      { name: "tube", title: "Tube", value: tube ?? "default" },
      { name: "body", title: "Body", kind: "area", required: false },
      { name: "priority", title: "Priority", kind: "number", value: 0, small: true },
      { name: "delay", title: "Delay (s)", kind: "number", value: 0, small: true },
      { name: "ttr", title: "Time to run (s)", kind: "number", value: 60, small: true },
    ],
  });
  if (!values) return;
  const { tube: into, ...job } = values;
  try {
    const task = await post(`${tubePath(into)}/jobs`, job);
    notice(`Job ${task.job} put into “${into}”.`);
  } catch (error) {
    notice(error.message, "bad");
  }
  look();
}

export async function pause(tube, look) {
  const values = await ask({
    title: `Pause “${tube}”?`, text: "Nobody can reserve a job of it meanwhile.", label: "Pause",
    fields: [{ name: "seconds", title: "For so many seconds", kind: "number", value: 600 }],
  });
  return values && send(`${tubePath(tube)}/actions`, { action: "pause", ...values }, look, `“${tube}” is paused.`);
}

export const resume = (tube, look) => send(`${tubePath(tube)}/actions`, { action: "resume" }, look, `“${tube}” goes on.`);

export async function flush(tube, figures, look) {
  const number = ["ready", "reserved", "delayed", "buried"].reduce((sum, state) => sum + figures[`current-jobs-${state}`], 0);
  const values = await ask({
    title: `Delete all ${jobs(number)} of “${tube}”?`, danger: true, label: `Delete ${jobs(number)}`,
    text: "Ready, reserved, delayed and buried ones, as many as there are when the server begins. They are gone for good.",
  });
  return values && send(`${tubePath(tube)}/actions`, { action: "flush" }, look);
}

export async function drain(isDraining, look) {
  const values = await ask(isDraining
    ? { title: "End drain mode?", text: "The server takes jobs again.", label: "End drain mode" }
    : { title: "Drain the server?", text: "It refuses every put from now on, and goes on with everything else.", label: "Drain", danger: true });
  return values && send("server/actions", { action: isDraining ? "undrain" : "drain" }, look, isDraining ? "The server takes jobs again." : "The server is draining.");
}
