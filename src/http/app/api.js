// The API: requests, the token, and the progress of tasks.
import { at, make } from "./figures.js";

const REQUEST_TIMEOUT_MS = 60000, POLL_MS = 250;
const KEY = "beanstalkd-token";
let asking = null;

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

function headers(more) {
  const token = sessionStorage.getItem(KEY);
  return { ...more, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
}

/* All requests that need the token wait for one dialog. */
function askForToken(isRefused) {
  asking ??= new Promise((resume) => {
    const box = make("dialog", { "aria-labelledby": "token-title" });
    const field = make("input", {
      type: "password", autocomplete: "off", required: true, minLength: 32, "aria-label": "Token",
    });
    const form = make("form", {
      onsubmit: (event) => {
        event.preventDefault();
        sessionStorage.setItem(KEY, field.value.trim());
        box.close();
        box.remove();
        asking = null;
        resume();
      },
    }, make("h2", { id: "token-title" }, "Token"),
    make("p", { class: "faint" },
      "This server requires the token in the file of --admin-token-file. The page keeps it until this tab is closed."),
    isRefused ? make("p", { class: "wrong", role: "alert" }, "The server does not accept this token.") : null,
    make("div", { class: "field" }, field),
    make("div", { class: "row" }, make("button", { class: "main", type: "submit" }, "Open")));
    box.addEventListener("cancel", (event) => event.preventDefault());
    box.append(form);
    document.body.append(box);
    box.showModal();
  });
  return asking;
}

async function request(path, options) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const response = await fetch(`/api/v1/${path}`, {
      ...options, headers: headers(options.headers),
      signal: AbortSignal.any([AbortSignal.timeout(REQUEST_TIMEOUT_MS), ...(options.signal ? [options.signal] : [])]),
    });
    if (response.ok) return response;
    const problem = await response.json().catch(() => ({ error: "failed", message: response.statusText }));
    if (response.status !== 401) throw new Refused(response.status, problem.error, problem.message);
    /* Another request may have got the right token meanwhile. */
    if (token !== sessionStorage.getItem(KEY)) continue;
    sessionStorage.removeItem(KEY);
    await askForToken(token !== null);
  }
}

export async function get(path, parameters = {}, signal) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given).toString();
  return (await request(query ? `${path}?${query}` : path, { signal })).json();
}

export const blob = async (path) => (await request(path, {})).blob();

export async function post(path, body) {
  const response = await request(path, {
    method: "POST",
    headers: { "X-Beanstalkd-Admin": "1", ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body ? JSON.stringify(body) : undefined,
  });
  return response.json();
}

export function notice(text, kind = "") {
  const box = make("div", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : null },
    make("div", { class: "row" }, make("span", {}, text)));
  at("notices").append(box);
  if (kind !== "running") setTimeout(() => box.remove(), kind === "bad" ? 12000 : 6000);
  return box;
}

const number = new Intl.NumberFormat("en");
const DONE = {
  kick: "kicked", delete: "deleted", move: "moved", priority: "given another priority", delay: "given another delay",
  redrive: "sent back", flush: "deleted", "flush-buried": "deleted", "flush-cooldowns": "forgotten", put: "put",
};

function result(task) {
  const did = DONE[task.action];
  if (!did) return "Done.";
  const parts = [`${number.format(task.done)} ${task.done === 1 ? "job" : "jobs"} ${did}.`];
  if (task.skipped) parts.push(`${number.format(task.skipped)} not changed: ${task.message}.`);
  else if (task.state === "failed") parts.push(`Then it failed: ${task.message}.`);
  if (task.state === "stopped") parts.push("Stopped.");
  return parts.join(" ");
}

const watched = new Set();

/** Shows the tasks that run and are not shown yet: those from before a reload of the page, and those of others. */
export async function watchAll(refresh, mayStop) {
  const { tasks } = await get("tasks");
  for (const task of tasks.filter(({ id, state }) => ["running", "stopping"].includes(state) && !watched.has(id))) {
    watch(task, refresh, mayStop).catch((error) => notice(error.message, "bad"));
  }
}

/** Shows the progress of a task until it ends, then its result. Calls `refresh` at each step. */
export async function watch(task, refresh, mayStop = true) {
  let box = null, bar = null, text = null;
  watched.add(task.id);
  while (task.state === "running" || task.state === "stopping") {
    if (!box) {
      box = notice("", "running");
      text = box.querySelector("span");
      bar = make("progress", { "aria-label": "Progress" });
      if (task.expected) bar.max = task.expected;
      const stop = make("button", {
        onclick: () => {
          stop.disabled = true;
          post(`tasks/${task.id}/stop`).catch((error) => notice(error.message, "bad"));
        },
      }, "Stop");
      if (mayStop) box.firstChild.append(stop);
      box.append(bar);
    }
    const all = task.expected ? `of ${number.format(task.expected)} ` : "", where = task.tube ? ` (${task.tube})` : "";
    text.textContent = `${number.format(task.done)} ${all}jobs ${DONE[task.action] ?? "done"}${where}…`;
    if (task.expected) bar.value = task.done + task.skipped;
    await new Promise((resume) => setTimeout(resume, POLL_MS));
    task = await get(`tasks/${task.id}`);
    refresh?.();
  }
  box?.remove();
  notice(result(task), task.state === "failed" || (task.done === 0 && task.skipped) ? "bad" : "");
  return task;
}
