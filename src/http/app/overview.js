// The first view: the figures of the server and its tubes.
import { cards, count, duration, make, rate, whole } from "./figures.js";
import { definitions, replace, spark, tubeLink } from "./widgets.js";
import { get } from "./api.js";

const PAGE = 100, SPARKS = 60;
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
    const seconds = old ? (now - old.at) / 1000 : 0;
    const per = (key) => old && seconds > 0 ? Math.max(0, tube[key] - old.tube[key]) / seconds : null;
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

export function overview(main, changed) {
  /* Tubes with buried jobs come first, because buried jobs need an operator. */
  let sorting = { key: "current-jobs-buried", up: false }, cursors = [null], search = "", next = null, asked = 0;
  const plots = cards();
  const states = make("section", { class: "grid", "aria-label": "Jobs by state" }, plots.states);
  const rates = make("section", { class: "grid", "aria-label": "Rates of the last ten minutes" }, plots.rates);
  const about = make("section", { "aria-label": "About the server" });
  const title = make("h2", {}, "Tubes");
  const found = make("span", { class: "faint" });
  /* Escape empties the field with the event "search" alone. */
  const changedSearch = () => { search = field.value.trim(); cursors = [null]; list(); };
  const field = make("input", {
    type: "search", id: "search", placeholder: "Search tubes: text or mail-*", "aria-label": "Search tubes",
    oninput: changedSearch, onsearch: changedSearch,
  });
  const head = make("tr"), body = make("tbody");
  const before = make("button", { onclick: () => { cursors.pop(); list(); } }, "Back");
  const after = make("button", { onclick: () => { cursors.push(next); list(); } }, "Next");
  const empty = make("div", { class: "empty", hidden: true }, "No tube matches.");
  replace(main, states,
    make("div", { class: "row space" }, title, field, found, make("span", { class: "row end" }, before, after)),
    make("div", { class: "card scroll" },
      make("table", { "aria-label": "Tubes" }, make("thead", {}, head), body), empty),
    make("h2", {}, "Rates of the last ten minutes"), rates, make("h2", {}, "Server"), about);

  function showHead() {
    replace(head, COLUMNS.map(([key, text, where = ""]) => {
      const sorted = key === sorting.key ? (sorting.up ? "ascending" : "descending") : null;
      return make("th", { scope: "col", class: where, "aria-sort": sorted }, key === null ? text : make("button", {
        "data-key": `sort-${key}`,
        onclick: () => {
          sorting = { key, up: key === sorting.key ? !sorting.up : key === "name" };
          cursors = [null];
          showHead();
          list();
        },
      }, text));
    }));
  }

  async function list() {
    const number = ++asked;
    const answer = await get("tubes", {
      sort: sorting.key, order: sorting.up ? "ascending" : "descending", search, limit: PAGE, cursor: cursors.at(-1),
    });
    /* A newer request has made this answer obsolete. */
    if (number !== asked) return;
    note(answer.tubes);
    next = answer.next;
    title.textContent = `Tubes (${whole.format(answer.total)})`;
    const first = (cursors.length - 1) * PAGE;
    found.textContent = [
      search && `${whole.format(answer.matched)} found`,
      answer.matched > PAGE && answer.tubes.length
        && `${whole.format(first + 1)} to ${whole.format(first + answer.tubes.length)}`,
    ].filter(Boolean).join(", ");
    before.disabled = cursors.length === 1;
    after.disabled = next === null;
    before.parentNode.hidden = before.disabled && after.disabled;
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
  changed();
  return { refresh, title: "Tubes", search: field };
}
