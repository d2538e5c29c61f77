// The page: chooses the view, refreshes it, and shows the state of the server in the header.
import { at, make } from "./figures.js";
import { replace } from "./widgets.js";
import { get, notice, watchAll } from "./api.js";
import { drain, put } from "./actions.js";
import { overview } from "./overview.js";
import { tube } from "./tube.js";
import { job } from "./job.js";
import { clients } from "./clients.js";

const REFRESH_MS = 2000;
let view = null, refreshing = null, again = false, timer = null;

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function open() {
  const [path, query] = location.hash.slice(1).split(/\?(.*)/s);
  const [, kind, ...rest] = path.split("/").map(decoded);
  const main = make("main", { id: "main", tabIndex: -1 });
  at("main").replaceWith(main);
  view = kind === "tube" && rest[0] ? tube(main, changed, rest[0], rest[1], new URLSearchParams(query ?? ""))
    : kind === "job" && rest[0] ? job(main, changed, rest[0])
      : kind === "clients" ? clients(main, changed)
        : overview(main, changed);
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
  replace(at("nav"), goTo, server.read_only ? [] : [
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
let isFirst = true;

async function refresh() {
  const shown = view;
  try {
    const server = await get("server");
    if (shown !== view) return;
    showHead(server);
    if (isFirst) {
      isFirst = false;
      await watchAll(changed, !server.read_only);
    }
    await shown.refresh(server);
    document.body.classList.remove("stale");
  } catch (error) {
    if (shown !== view) return;
    const isUnreachable = error instanceof TypeError || error instanceof DOMException;
    if (isUnreachable) {
      at("state").textContent = "not reachable";
      at("state").className = "bad";
      document.body.classList.add("stale");
    } else {
      notice(error.message, "bad");
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

addEventListener("hashchange", open);
document.addEventListener("visibilitychange", () => { if (!document.hidden) changed(); });
addEventListener("keydown", (event) => {
  const isTyping = event.target.matches?.("input, textarea, select");
  if (event.key === "/" && !isTyping && view.search) {
    event.preventDefault();
    view.beforeSearch?.();
    view.search.focus();
  } else if (event.key === "Escape" && !at("dialog").open) {
    if (isTyping) event.target.blur(); /* A search field is emptied, too, and its filter with it. */
    else if (location.hash.length > 2) history.back();
  }
});
open();
