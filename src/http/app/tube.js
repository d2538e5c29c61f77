// The view of a tube: its jobs by state, filtered, a page at a time, and the actions on them.
import { STATES, bytes, count, duration, make, whole } from "./figures.js";
import { replace, tagsOf, tubeLink, tubePath } from "./widgets.js";
import { get } from "./api.js";
import { changeButtons, changeMatching, changeSelected, flush, pause, put, resume } from "./actions.js";

const PAGE = 50;
/* A list for which the server examined more jobs is not refreshed automatically. */
const CHEAP_LIST = 5000;
const UNITS = [["1", "seconds"], ["60", "minutes"], ["3600", "hours"], ["86400", "days"]];

const COLUMNS = [
  ["Job", "left", (job) => make("a", { href: `#/job/${job.id}`, "data-key": `job-${job.id}` }, String(job.id))],
  ["Priority", "", (job) => whole.format(job.pri)],
  ["Age", "", (job) => duration(job.age)],
  ["Time left", "", (job) => job.state === "delayed" || job.state === "reserved" ? duration(job["time-left"]) : "–"],
  ["TTR", "wide", (job) => duration(job.ttr)],
  ["Reserved", "wide", (job) => whole.format(job.reserves)],
  ["Timed out", "wide", (job) => whole.format(job.timeouts)],
  ["Released", "wide", (job) => whole.format(job.releases)],
  ["Buried", "wide", (job) => whole.format(job.buries)],
  ["Kicked", "wide", (job) => whole.format(job.kicks)],
  ["Tags", "left tags", (job) => tagsOf(job).join(" ") || "–"],
  ["Body", "", (job) => bytes(job.bytes)],
];

function ageField(title, changed) {
  const number = make("input", { type: "number", min: 0, step: 1, oninput: changed, "aria-label": `${title}: number` });
  const unit = make("select", { "aria-label": `${title}: unit`, onchange: changed }, UNITS.map(([value, text]) => make("option", { value }, text)));
  unit.value = "60";
  return {
    field: make("label", {}, title, make("span", { class: "pair" }, number, unit)),
    get: () => number.value === "" ? undefined : String(Math.round(Number(number.value) * Number(unit.value))),
    text: () => `${number.value} ${unit.selectedOptions[0].textContent}`,
    clear: () => { number.value = ""; },
  };
}

/** The fields of the filter. */
function filters(changed) {
  const older = ageField("Older than", changed), younger = ageField("Younger than", changed);
  const priority = (title) => make("input", { type: "number", min: 0, max: 4294967295, step: 1, oninput: changed, "aria-label": title, placeholder: title.split(" ")[0].toLowerCase() });
  const least = priority("From priority"), most = priority("To priority");
  const contains = make("input", { type: "search", id: "search", placeholder: "text in the body", maxLength: 256, oninput: changed });
  const tag = make("input", { placeholder: "grp:name", maxLength: 204, autocomplete: "off", spellcheck: false, title: "idp, con, grp, aft or exp; with a key or a group: grp:name", oninput: changed });
  const clear = make("button", { type: "button", class: "plain", onclick: () => { older.clear(); younger.clear(); least.value = most.value = tag.value = contains.value = ""; changed(); } }, "Clear");
  const isRoomy = matchMedia("(min-width: 44rem)").matches;
  const box = make("details", { open: isRoomy }, make("summary", {}, "Filter"), make("div", { class: "filters" }, make("label", { class: "grow" }, "Body contains", contains), older.field, younger.field,
    make("label", {}, "Priority", make("span", { class: "pair" }, least, "–", most)), make("label", {}, "Tag", tag), clear));
  const get = () => Object.fromEntries(Object.entries({
    older_than: older.get(), younger_than: younger.get(), min_priority: least.value, max_priority: most.value, tag: tag.value.trim(), contains: contains.value,
  }).filter(([, value]) => value !== undefined && value !== ""));
  const told = () => {
    const given = get(), parts = [];
    if (given.older_than) parts.push(`older than ${older.text()}`);
    if (given.younger_than) parts.push(`younger than ${younger.text()}`);
    if (given.min_priority) parts.push(`priority from ${given.min_priority}`);
    if (given.max_priority) parts.push(`priority to ${given.max_priority}`);
    if (given.tag) parts.push(`tag ${given.tag}`);
    if (given.contains) parts.push(`body contains “${given.contains}”`);
    return parts.length ? `: ${parts.join(", ")}` : ", all in this state";
  };
  return { box, contains, get, told };
}

export function tube(main, changed, name, given) {
  let state = STATES.includes(given) ? given : null, cursors = [null], next = null, asked = 0, isCheap = true, readOnly = true;
  let figures = null, shown = [], scope = "selected", timer = null;
  const selected = new Set();
  const path = tubePath(name);
  const again = () => { isCheap = true; return changed(); };
  const restart = () => {
    cursors = [null];
    selected.clear();
    isCheap = true;
    asked++; /* ends a search that is under way */
    clearTimeout(timer);
    timer = setTimeout(changed, 250);
  };
  const filter = filters(restart);
  const title = make("h1", {}, name), pills = make("span", { class: "row" }), acts = make("span", { class: "row end" });
  const tabs = make("nav", { class: "tabs", "aria-label": "States" });
  const all = make("input", { type: "checkbox", "aria-label": "Select all jobs of this page", onchange: () => { for (const { id } of shown) if (all.checked) selected.add(id); else selected.delete(id); showJobs(); } });
  const body = make("tbody");
  const empty = make("div", { class: "empty" });
  const before = make("button", { onclick: () => { cursors.pop(); again(); } }, "Back");
  const after = make("button", { onclick: () => { cursors.push(next); again(); } }, "Next");
  const told = make("span", { class: "faint" });
  const bar = make("div", { class: "card acting row" });
  const searchAgain = make("button", { hidden: true, onclick: again }, "Search again");
  replace(main, make("div", { class: "row" }, title, pills, acts), tabs, filter.box,
    make("div", { class: "row paging" }, told, searchAgain, make("span", { class: "row end" }, before, after)),
    make("div", { class: "card scroll" }, make("table", { "aria-label": "Jobs" },
      make("thead", {}, make("tr", {}, make("th", { class: "check", scope: "col" }, all), COLUMNS.map(([text, where]) => make("th", { scope: "col", class: where }, text)))), body), empty),
    bar);

  function showHead() {
    const paused = figures.pause > 0;
    replace(pills, paused ? make("span", { class: "pill buried" }, `paused for ${duration(figures["pause-time-left"])}`) : null,
      make("span", { class: "faint" }, `${whole.format(figures["current-watching"])} watching, ${whole.format(figures["current-waiting"])} waiting`));
    replace(acts, readOnly ? [] : [
      make("button", { "data-key": "put", onclick: () => put(name, again) }, "Put…"),
      paused ? make("button", { "data-key": "pause", onclick: () => resume(name, again) }, "Resume") : make("button", { "data-key": "pause", onclick: () => pause(name, again) }, "Pause…"),
      make("button", { class: "danger", "data-key": "flush", onclick: () => flush(name, figures, again) }, "Flush…")]);
    replace(tabs, STATES.map((each) => make("a", { href: tubeLink(name, each), class: each, "aria-current": each === state ? "page" : null, "data-key": each },
      each, make("b", {}, count(figures[`current-jobs-${each}`])))));
  }

  function showJobs() {
    replace(body, shown.map((job) => {
      const box = make("input", {
        type: "checkbox", checked: selected.has(job.id), "aria-label": `Select job ${job.id}`, "data-key": `select-${job.id}`,
        onchange: () => { if (box.checked) selected.add(job.id); else selected.delete(job.id); showJobs(); },
      });
      return make("tr", { class: selected.has(job.id) ? "selected" : "" }, make("td", { class: "check" }, box),
        COLUMNS.map(([, where, content]) => { const value = content(job); return make("td", { class: `${where} ${value === "0" || value === "–" ? "zero" : ""}` }, value); }));
    }));
    all.checked = shown.length > 0 && shown.every(({ id }) => selected.has(id));
    all.disabled = shown.length === 0;
    showBar();
  }

  function showBar() {
    bar.hidden = readOnly;
    const number = selected.size;
    const act = (action) => scope === "selected"
      ? changeSelected(action, [...selected], () => { selected.clear(); again(); })
      : changeMatching(action, name, { state, ...filter.get() }, filter.told(), again);
    const choice = (value, text) => make("button", { "aria-pressed": String(scope === value), "data-key": value, onclick: () => { scope = value; showBar(); } }, text);
    replace(bar, make("span", { class: "segments", role: "group", "aria-label": "On which jobs" }, choice("selected", `${whole.format(number)} selected`), choice("matching", "All that match")),
      changeButtons(state, act, scope === "selected" && number === 0));
  }

  async function refresh(server) {
    readOnly = server.read_only;
    try {
      figures = await get(path);
    } catch (error) {
      if (error.status !== 404) throw error;
      figures = null;
      replace(main, make("h1", {}, name), make("p", { class: "empty" }, "There is no such tube. A tube exists while it has jobs, or while a client uses or watches it."));
      return;
    }
    /* Buried jobs come first, because they need an operator. */
    state ??= ["buried", "ready", "delayed", "reserved"].find((each) => figures[`current-jobs-${each}`] > 0) ?? "ready";
    if (!main.contains(tabs)) replace(main, make("p", { class: "empty" }, make("a", { href: tubeLink(name), onclick: () => location.reload() }, "The tube exists again.")));
    showHead();
    searchAgain.hidden = isCheap;
    if (!isCheap) return;
    const number = ++asked;
    let answer, cursor = cursors.at(-1), examined = 0;
    /* The server examines a bounded number of jobs for each answer: the search goes on until a job matches. */
    do {
      answer = await get(`${path}/jobs`, { state, limit: PAGE, cursor, ...filter.get() });
      if (number !== asked || !main.isConnected) return;
      examined += answer.looked_at;
      cursor = answer.next;
      if (!answer.jobs.length && cursor !== null) told.textContent = `Examined ${whole.format(examined)} jobs…`;
    } while (!answer.jobs.length && cursor !== null);
    isCheap = examined <= CHEAP_LIST;
    searchAgain.hidden = isCheap;
    shown = answer.jobs;
    next = answer.next;
    before.disabled = cursors.length === 1;
    after.disabled = next === null;
    after.textContent = next !== null && shown.length < PAGE ? "Continue the search" : "Next";
    before.parentNode.hidden = before.disabled && after.disabled;
    const isFiltered = Object.keys(filter.get()).length > 0;
    empty.hidden = shown.length > 0;
    empty.textContent = isFiltered ? "No job matches." : `No ${state} jobs.`;
    told.textContent = isFiltered && examined > shown.length ? `Examined ${whole.format(examined)} jobs.` : "";
    showJobs();
  }
  return { refresh, hasPut: true, title: name, search: filter.contains, beforeSearch: () => { filter.box.open = true; } };
}
