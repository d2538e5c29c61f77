// The API: requests, the token, and the progress of tasks.
import { at, make } from "./figures.js";

const REQUEST_TIMEOUT_MS = 60000, POLL_MS = 250;
const KEY = "beanstalkd-token";
let asking = null;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
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
      type: "password", autocomplete: "off", required: true, minLength: 32, pattern: "\\s*[!-~]{32,1024}\\s*",
      title: "32 to 1024 visible characters of ASCII", "aria-label": "Token",
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
    /* Escape does not close it. A browser closes it for the second Escape all the same. */
    box.addEventListener("cancel", (event) => event.preventDefault());
    box.addEventListener("close", () => { if (box.isConnected) box.showModal(); });
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
    }).catch((error) => {
      if (options.signal?.aborted) throw error;
      throw new TypeError(`The server does not answer${options.method ? ": it may have made the change" : ""}.`);
    });
    if (response.ok) return response;
    const problem = await response.json().catch(() => ({}));
    if (response.status !== 401) {
      throw new Refused(response.status, problem.message ?? `The request failed with the status ${response.status}.`);
    }
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

export const blob = async (path, signal) => (await request(path, { signal })).blob();

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
/* Whether a task may run that is not shown: at the start, and after the poll of a task has failed. */
let mayMiss = true;

/** Shows the tasks that run and are not shown yet: tasks from before a reload of the page, and tasks of others. */
export async function watchAll(refresh, mayStop) {
  if (!mayMiss) return;
  const { tasks } = await get("tasks");
  mayMiss = false;
  for (const task of tasks.filter((each) => isRunning(each) && !watched.has(each.id))) {
    watch(task, refresh, mayStop).catch((error) => notice(error.message, "bad"));
  }
}

const isRunning = (task) => task.state === "running" || task.state === "stopping";

/** A notice with the progress of a task, and a function that updates it. */
function progress({ id, expected, tube, action }, mayStop) {
  const box = notice("", "running"), text = box.querySelector("span");
  const bar = make("progress", { "aria-label": "Progress" });
  if (expected) bar.max = expected;
  const stop = make("button", {
    onclick: () => {
      stop.disabled = true;
      post(`tasks/${id}/stop`).catch((error) => {
        stop.disabled = false;
        notice(error.message, "bad");
      });
    },
  }, "Stop");
  if (mayStop) box.firstChild.append(stop);
  box.append(bar);
  const all = expected ? `of ${number.format(expected)} ` : "", where = tube ? ` (${tube})` : "";
  const show = ({ done, skipped }) => {
    text.textContent = `${number.format(done)} ${all}jobs ${DONE[action] ?? "done"}${where}…`;
    if (expected) bar.value = done + skipped;
  };
  return { box, show };
}

/** Shows the progress of a task until it ends or a poll fails, then its result. Calls `refresh` at the end. */
export async function watch(task, refresh, mayStop = true) {
  if (isRunning(task)) {
    const { box, show } = progress(task, mayStop);
    watched.add(task.id);
    try {
      while (isRunning(task)) {
        show(task);
        await new Promise((resume) => setTimeout(resume, POLL_MS));
        task = await get(`tasks/${task.id}`);
      }
      refresh();
    } catch (error) {
      mayMiss = true;
      throw error;
    } finally {
      watched.delete(task.id);
      box.remove();
    }
  }
  notice(result(task), task.state === "failed" || (task.done === 0 && task.skipped) ? "bad" : "");
  return task;
}
