// The page: chooses the view, refreshes it, and shows the state of the server in the header.
import { at, make, replace } from "./figures.js";
import { Refused, get, notice, watchAll } from "./api.js";
import { cancelQuestions, drain, put } from "./actions.js";
import { overview } from "./overview.js";
import { tube } from "./tube.js";
import { job } from "./job.js";
import { clients } from "./clients.js";

const REFRESH_MS = 2000;
let view = null, leaving = new AbortController(), refreshing = null, again = false, timer = null;
/* The id of the server: it makes another one when it starts. */
let started = null;
/* The error of the last refresh, which is not shown again. */
let complaint = null;
/* While a button of the page is pressed: a promise that resolves at its release. */
let pressed = null;

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/*
 * What the API answers to a view, unless the view is left. The view draws the answer at once, so the answer waits while
 * a button is pressed: a button that is replaced before its release gets no click.
 */
async function read(left, path, parameters, signal = left) {
  const ended = AbortSignal.any([left, signal]);
  const answer = await get(path, parameters, ended);
  await pressed?.promise;
  ended.throwIfAborted();
  return answer;
}

function open() {
  const [path, query] = location.hash.slice(1).split(/\?(.*)/s);
  const [, kind, ...rest] = path.split("/").map(decoded);
  const main = make("main", { id: "main", tabIndex: -1 });
  at("main").replaceWith(main);
  /* Ends the requests of the view that is left: their answers are not needed, and a browser has few connections. */
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const frame = { main, changed, read: (...request) => read(signal, ...request), signal };
  view = kind === "tube" && rest[0] ? tube(frame, rest[0], rest[1], new URLSearchParams(query ?? ""))
    : kind === "job" && rest[0] ? job(frame, rest[0])
      : kind === "clients" ? clients(frame)
        : overview(frame);
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
  changed();
}

function showHead(server) {
  const { stats } = server;
  const trouble = [
    stats.draining && "draining",
    ["full", "failed"].includes(stats["binlog-state"]) && `binlog ${stats["binlog-state"]}`,
    server.read_only && "read-only",
  ].filter(Boolean).join(", ");
  at("state").textContent = trouble || "serving";
  at("state").className = trouble ? "bad" : "";
  at("host").textContent = stats.hostname;
  replace(acts, server.read_only ? [] : [
    view.hasPut ? null : make("button", { "data-key": "server-put", onclick: () => put(null, changed) }, "Put a job…"),
    make("button", { "data-key": "drain", onclick: () => drain(stats.draining, changed) },
      stats.draining ? "End drain mode" : "Drain…")]);
  document.title = `${view.title} – beanstalkd on ${stats.hostname}`;
}

/* Goes to the job with a number. */
const number = make("input", {
  type: "search", inputMode: "numeric", pattern: "[0-9]+", required: true,
  placeholder: "Go to job", "aria-label": "Go to job", "data-key": "go-to",
});
const goTo = make("form", {
  class: "go-to",
  onsubmit: (event) => {
    event.preventDefault();
    location.hash = `#/job/${number.value}`;
    number.value = "";
  },
}, number);
/* The form stays when the buttons are replaced: a field that is moved loses the focus for an instant. */
const acts = make("span", { class: "row" });
at("nav").append(goTo, acts);

async function refresh() {
  const shown = view;
  try {
    const server = await read(leaving.signal, "server");
    if (shown !== view) return;
    /* A server that has started again may give the numbers of selected jobs, and of those in a question, to others. */
    const isOther = started !== null && started !== server.stats.id;
    started = server.stats.id;
    if (isOther) {
      cancelQuestions();
      return open();
    }
    showHead(server);
    await watchAll(changed, !server.read_only);
    await shown.refresh(server);
    document.body.classList.remove("stale");
    complaint = null;
  } catch (error) {
    if (shown !== view) return;
    document.body.classList.add("stale");
    /* A proxy answers, too, while its server does not. */
    const isOfServer = error instanceof Refused && error.status < 500;
    if (!isOfServer) {
      at("state").textContent = "not reachable";
      at("state").className = "bad";
    } else if (complaint !== error.message) {
      complaint = error.message;
      notice(complaint, "bad");
    }
  }
}

/* Refreshes at once, or again if a refresh is under way, and then every two seconds. */
async function changed() {
  if (refreshing) {
    again = true;
    return;
  }
  clearTimeout(timer);
  refreshing = refresh();
  await refreshing;
  refreshing = null;
  timer = setTimeout(() => { if (!document.hidden) changed(); }, again ? 0 : REFRESH_MS);
  again = false;
}

/* The release of a scroll bar or of a list of options has no event. */
const press = ({ target }) => {
  if (target.closest?.("a, button, input, label, summary")) pressed ??= Promise.withResolvers();
};
/* The click comes after the release. */
const release = () => setTimeout(() => { pressed?.resolve(); pressed = null; });
addEventListener("pointerdown", (event) => { if (event.button === 0) press(event); });
addEventListener("keydown", (event) => { if (event.key === " ") press(event); });
for (const end of ["pointerup", "pointercancel", "keyup", "blur"]) addEventListener(end, release);
addEventListener("hashchange", open);
document.addEventListener("visibilitychange", () => { if (!document.hidden) changed(); });
addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  const isTyping = event.target.matches?.("input, textarea, select");
  if (event.key === "/" && !isTyping && view.search) {
    event.preventDefault();
    view.beforeSearch?.();
    view.search.focus();
  } else if (event.key === "Escape") {
    if (isTyping) event.target.blur(); /* A search field is emptied, too, and its filter with it. */
    else if (location.hash.length > 2) history.back();
  }
});
open();
