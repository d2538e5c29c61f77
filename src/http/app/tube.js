// The view of a tube: its jobs by state, filtered, a page at a time, and the actions on them.
import { STATES, bytes, count, duration, make, replace, whole } from "./figures.js";
import { pager, tagsOf, tubeLink, tubePath } from "./widgets.js";
import { changeButtons, changeMatching, changeSelected, flush, pause, put, resume } from "./actions.js";
import { filters } from "./filter.js";

const PAGE = 50, PREVIEW_BYTES = 80, TYPING_MS = 250;
/* A list for which the server examined more jobs is not refreshed automatically. */
const CHEAP_LIST = 5000;

const COLUMNS = [
  ["Job", "left",
    (job) => make("a", { href: `#/job/${job.id}`, "data-key": `job-${job.id}` }, String(job.id)), (job) => job.id],
  ["Priority", "", (job) => whole.format(job.pri), (job) => job.pri],
  ["Age", "", (job) => duration(job.age), (job) => job.age],
  ["Time left", "", timeLeft, (job) => job["time-left"]],
  ["TTR", "wide", (job) => duration(job.ttr), (job) => job.ttr],
  ["Reserved", "wide", (job) => whole.format(job.reserves), (job) => job.reserves],
  ["Timed out", "wide", (job) => whole.format(job.timeouts), (job) => job.timeouts],
  ["Released", "wide", (job) => whole.format(job.releases), (job) => job.releases],
  ["Buried", "wide", (job) => whole.format(job.buries), (job) => job.buries],
  ["Kicked", "wide", (job) => whole.format(job.kicks), (job) => job.kicks],
  ["Tags", "left tags", (job) => tagsOf(job).join(" ") || "–", (job) => tagsOf(job).join(" ")],
  ["Size", "", (job) => bytes(job.bytes), (job) => job.bytes],
  ["Body", "left preview wide", (job) => preview(job.body), (job) => preview(job.body)],
];

/** The time until a delayed job is ready, or until a reserved one is taken from its worker. */
function timeLeft(job) {
  if (job.state !== "delayed" && job.state !== "reserved") return "–";
  return `${duration(job["time-left"])}${job.kept_for_grace ? ", held for the grace" : ""}`;
}

/** The beginning of a body in one line. */
function preview({ encoding, data, truncated }) {
  if (encoding === "text") {
    const text = data.replace(/[\s\u0000-\u001f\u007f-\u009f]+/g, " ");
    return `${text}${truncated ? "…" : ""}` || "(empty)";
  }
  const digits = [...atob(data)].slice(0, 16).map((byte) => byte.charCodeAt(0).toString(16).padStart(2, "0"));
  return `${digits.join(" ")}${data.length > 24 ? " …" : ""}` || "(empty)";
}

/** The jobs as the columns sort them; without `sorting`, as the server lists them: in the order of their service. */
function sorted(jobs, sorting) {
  if (!sorting) return jobs;
  const value = COLUMNS[sorting.column][3], sign = sorting.up ? 1 : -1;
  return jobs.toSorted((a, b) => {
    const [x, y] = [value(a), value(b)];
    return sign * (x < y ? -1 : x > y ? 1 : 0);
  });
}

function row(job, selected, changed) {
  const box = make("input", {
    type: "checkbox", checked: selected.has(job.id), "aria-label": `Select job ${job.id}`,
    "data-key": `select-${job.id}`,
    onchange: () => { if (box.checked) selected.add(job.id); else selected.delete(job.id); changed(); },
  });
  return make("tr", { class: selected.has(job.id) ? "selected" : "" }, make("td", { class: "check" }, box),
    COLUMNS.map(([, where, content]) => {
      const value = content(job);
      return make("td", { class: `${where} ${value === "0" || value === "–" ? "zero" : ""}` }, value);
    }));
}

/** The table of a page of jobs; some may be selected. Calls `changed` when it has been drawn. */
function jobTable(changed) {
  let jobs = [], sorting = null;
  const selected = new Set(), columns = make("tr"), body = make("tbody"), empty = make("div", { class: "empty" });
  const all = make("input", {
    type: "checkbox", "aria-label": "Select all jobs of this page",
    onchange: () => {
      for (const { id } of jobs) if (all.checked) selected.add(id); else selected.delete(id);
      showJobs();
    },
  });
  const box = make("div", { class: "card scroll" },
    make("table", { "aria-label": "Jobs" }, make("thead", {}, columns), body), empty);

  function showColumns() {
    replace(columns, make("th", { class: "check", scope: "col" }, all),
      COLUMNS.map(([text, where], column) => make("th", {
        scope: "col", class: where,
        "aria-sort": sorting?.column === column ? (sorting.up ? "ascending" : "descending") : null,
      }, make("button", {
        "data-key": `sort-${column}`, title: "Sorts the jobs of this page; the third time, in the order of the server",
        onclick: () => {
          sorting = sorting?.column !== column ? { column, up: true } : sorting.up ? { column, up: false } : null;
          showColumns();
          showJobs();
        },
      }, text))));
  }

  function showJobs() {
    replace(body, sorted(jobs, sorting).map((job) => row(job, selected, showJobs)));
    all.checked = jobs.length > 0 && jobs.every(({ id }) => selected.has(id));
    all.disabled = jobs.length === 0;
    changed();
  }

  function show(given, textIfEmpty) {
    jobs = given;
    empty.hidden = jobs.length > 0;
    empty.textContent = textIfEmpty;
    showJobs();
  }
  showColumns();
  return { box, selected, show, areDead: () => jobs.some((job) => job["dead-from"]) };
}

/** The buttons that change the selected jobs, or all that match. */
function actionBar({ selected, areDead }, canMatch, act) {
  let scope = "selected";
  const box = make("div", { class: "card acting row", hidden: true });
  function show(state) {
    const choice = (value, text) => make("button", {
      "aria-pressed": String(scope === value), "data-key": value, onclick: () => { scope = value; show(state); },
    }, text);
    replace(box,
      make("span", { class: "segments", role: "group", "aria-label": "On which jobs" },
        choice("selected", `${whole.format(selected.size)} selected`), choice("matching", "All that match")),
      changeButtons(state, areDead(), (action) => act(action, scope),
        scope === "selected" ? selected.size === 0 : !canMatch()));
  }
  return { box, show };
}

/* The server examines a bounded number of jobs for each answer: the search for a page goes on until a job matches. */
async function search(ask, cursor, progress) {
  let answer, examined = 0;
  do {
    answer = await ask(cursor);
    examined += answer.examined;
    cursor = answer.next;
    if (!answer.jobs.length && cursor !== null) progress.textContent = `Examined ${whole.format(examined)} jobs…`;
  } while (!answer.jobs.length && cursor !== null);
  return { ...answer, examined };
}

/** The list of the jobs of a tube in one state: its filter, its pages, and the actions on its jobs. */
class JobList {
  state = null;
  /* What the list shows: the key of its filter, the filter, and its words. Null while the fields say something else. */
  listed = null;
  /* The keys of the filter for which the list has begun, and that the fields had at their last change. */
  begun = null;
  noted = null;
  isCheap = true;
  searching = null;
  timer = null;

  constructor({ changed, read }, name, isInAddress, parameters) {
    Object.assign(this, { changed, read, name, isInAddress });
    this.filter = filters(() => this.note(), parameters);
    this.table = jobTable(() => this.bar.show(this.state));
    this.bar = actionBar(this.table, () => this.isListed(), (action, scope) => this.act(action, scope));
    this.pages = pager(() => this.again());
    this.progress = make("span", { class: "faint" });
    this.searchAgain = make("button", { hidden: true, onclick: () => this.again() }, "Search again");
    this.parts = [
      this.filter.box, make("div", { class: "row paging" }, this.progress, this.searchAgain, this.pages.box),
      this.table.box, this.bar.box];
  }

  key() {
    return JSON.stringify([this.state, this.filter.fault(), this.filter.get()]);
  }

  isListed() {
    return this.listed !== null && this.listed.key === this.key();
  }

  /* The address of the list with this filter, but in this state. */
  link(state) {
    return tubeLink(this.name, state, this.filter.fault() ? {} : this.filter.get());
  }

  again() {
    this.isCheap = true;
    return this.changed();
  }

  /* Some events come without a change: a field that loses the focus to a button must not replace the button. */
  note() {
    if (this.noted === this.key()) return;
    this.noted = this.key();
    this.restart();
  }

  restart() {
    this.isCheap = true;
    this.searching?.abort();
    this.bar.show(this.state);
    clearTimeout(this.timer);
    this.timer = setTimeout(this.changed, TYPING_MS);
  }

  act(action, scope) {
    const { selected } = this.table, again = () => this.again();
    if (scope === "selected") return changeSelected(action, [...selected], again, () => selected.clear());
    /* The fields may have changed since the buttons were drawn: only the jobs that the list shows are changed. */
    if (!this.isListed()) return this.restart();
    return changeMatching(action, this.name, this.listed, this.read, again);
  }

  /* The list for another filter begins at its first page, with nothing selected; the address has the filter. */
  begin() {
    this.begun = this.noted = this.key();
    this.isCheap = true;
    this.listed = null;
    this.pages.restart();
    this.table.selected.clear();
    if (this.isInAddress || Object.keys(this.filter.get()).length || location.hash.includes("?")) {
      history.replaceState(null, "", this.link(this.state));
    }
  }

  /* A filter with a fault has no list. */
  refuse(reason) {
    this.listed = null;
    this.progress.textContent = "";
    this.pages.box.hidden = true;
    this.table.show([], reason);
  }

  async refresh(state, readOnly) {
    this.state = state;
    this.bar.box.hidden = readOnly;
    if (this.begun !== this.key()) this.begin();
    this.searchAgain.hidden = this.isCheap;
    if (this.filter.fault()) return this.refuse(this.filter.fault());
    if (!this.isCheap) return;
    const filter = { state, ...this.filter.get() }, asked = { key: this.key(), filter, words: this.filter.words() };
    const { signal } = this.searching = new AbortController();
    const parameters = { ...filter, limit: PAGE, body_bytes: PREVIEW_BYTES };
    const ask = (cursor) => this.read(`${tubePath(this.name)}/jobs`, { ...parameters, cursor }, signal);
    try {
      this.show(asked, await search(ask, this.pages.cursor(), this.progress));
    } catch (error) {
      if (signal.aborted) return;
      if (error.status !== 400) throw error;
      this.refuse(error.message);
    }
  }

  show(asked, { jobs, next, examined }) {
    const isCurrent = this.pages.show(next, next !== null && jobs.length < PAGE ? "Continue the search" : "Next");
    this.isCheap = !isCurrent || examined <= CHEAP_LIST;
    this.searchAgain.hidden = this.isCheap;
    if (!isCurrent) return;
    const isFiltered = Object.keys(asked.filter).length > 1;
    /* The rows of the list before could be selected until now. */
    if (!this.listed) this.table.selected.clear();
    this.listed = asked;
    this.progress.textContent = isFiltered && examined > jobs.length ? `Examined ${whole.format(examined)} jobs.` : "";
    this.table.show(jobs, isFiltered ? "No job matches." : `No ${asked.filter.state} jobs.`);
  }
}

export function tube(frame, name, given, parameters) {
  const { main, changed, read } = frame;
  let state = STATES.includes(given) ? given : null, figures = null;
  const list = new JobList(frame, name, Boolean(given), parameters);
  const again = () => list.again();
  const pills = make("span", { class: "row" }), acts = make("span", { class: "row end" });
  const tabs = make("nav", { class: "tabs", "aria-label": "States" });
  const parts = [make("div", { class: "row" }, make("h1", {}, name), pills, acts), tabs, list.parts];
  replace(main, ...parts);

  function showHead(readOnly) {
    const paused = figures.pause > 0;
    replace(pills,
      paused ? make("span", { class: "pill buried" }, `paused for ${duration(figures["pause-time-left"])}`) : null,
      make("span", { class: "faint" },
        `${whole.format(figures["current-watching"])} watching, ${whole.format(figures["current-waiting"])} waiting`));
    replace(acts, readOnly ? [] : [
      make("button", { "data-key": "put", onclick: () => put(name, again) }, "Put…"),
      paused
        ? make("button", { "data-key": "pause", onclick: () => resume(name, again) }, "Resume")
        : make("button", { "data-key": "pause", onclick: () => pause(name, again) }, "Pause…"),
      make("button", { class: "danger", "data-key": "flush", onclick: () => flush(name, figures, again) }, "Flush…")]);
    replace(tabs, STATES.map((each) => make("a", {
      href: list.link(each), class: each, "aria-current": each === state ? "page" : null, "data-key": each,
    }, each, make("b", {}, count(figures[`current-jobs-${each}`])))));
  }

  async function refresh(server) {
    try {
      figures = await read(tubePath(name));
    } catch (error) {
      if (error.status !== 404 && error.status !== 400) throw error;
      replace(main, make("h1", {}, name), make("p", { class: "empty" },
        "There is no such tube. A tube exists while it has jobs, or while a client uses or watches it."));
      return;
    }
    /* Buried jobs come first, because they need an operator. */
    state ??= ["buried", "ready", "delayed", "reserved"].find((each) => figures[`current-jobs-${each}`] > 0) ?? "ready";
    if (!main.contains(tabs)) replace(main, ...parts);
    showHead(server.read_only);
    await list.refresh(state, server.read_only);
  }
  const { contains, box } = list.filter;
  return { refresh, hasPut: true, title: name, search: contains, beforeSearch: () => { box.open = true; } };
}
