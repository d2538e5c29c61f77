// The view of a tube: its jobs by state, filtered, a page at a time, and the actions on them.
import { STATES, bytes, count, duration, make, whole } from "./figures.js";
import { replace, tagsOf, tubeLink, tubePath } from "./widgets.js";
import { get } from "./api.js";
import { changeButtons, changeMatching, changeSelected, flush, pause, put, resume } from "./actions.js";

const PAGE = 50, PREVIEW_BYTES = 80;
/* A list for which the server examined more jobs is not refreshed automatically. */
const CHEAP_LIST = 5000;
const UNITS = [["1", "seconds"], ["60", "minutes"], ["3600", "hours"], ["86400", "days"]];

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

function ageField(title, changed) {
  const number = make("input", {
    type: "number", min: 0, max: 4294967295, step: 1, "aria-label": `${title}: number`, ...reacts(changed),
  });
  const unit = make("select", { "aria-label": `${title}: unit`, onchange: changed },
    UNITS.map(([value, text]) => make("option", { value }, text)));
  unit.value = "60";
  return {
    field: make("label", {}, title, make("span", { class: "pair" }, number, unit)),
    number,
    get: () => number.value === "" ? undefined : String(Number(number.value) * Number(unit.value)),
    text: () => `${number.value} ${unit.selectedOptions[0].textContent}`,
    set: (seconds) => {
      const [size] = UNITS.findLast(([each]) => seconds && Number(seconds) % Number(each) === 0) ?? ["60"];
      unit.value = size;
      number.value = seconds ? String(Number(seconds) / Number(size)) : "";
    },
  };
}

/* Escape in a search field empties it without an event "input". */
const reacts = (changed) => ({ oninput: changed, onchange: changed, onsearch: changed });

/** The fields of the filter. `given` are parameters of the address. */
function filters(changed, given) {
  const older = ageField("Older than", changed), younger = ageField("Younger than", changed);
  const priority = (title) => make("input", {
    type: "number", min: 0, max: 4294967295, step: 1, "aria-label": title,
    placeholder: title.split(" ")[0].toLowerCase(), ...reacts(changed),
  });
  const least = priority("From priority"), most = priority("To priority");
  const contains = make("input", {
    type: "search", id: "search", placeholder: "text in the body", maxLength: 256, ...reacts(changed),
  });
  const tag = make("input", {
    placeholder: "grp:name", maxLength: 204, autocomplete: "off", spellcheck: false,
    title: "idp, con, grp, aft, trc or exp; with a key or a group: grp:name", ...reacts(changed),
  });
  const set = (values) => {
    older.set(values.get("older_than"));
    younger.set(values.get("younger_than"));
    const others = [[least, "min_priority"], [most, "max_priority"], [tag, "tag"], [contains, "contains"]];
    for (const [field, key] of others) field.value = values.get(key) ?? "";
  };
  const clear = make("button", {
    type: "button", class: "plain", onclick: () => { set(new Map()); changed(); },
  }, "Clear");
  set(given);
  const isRoomy = matchMedia("(min-width: 44rem)").matches;
  const box = make("details", { open: isRoomy || [...given.keys()].length > 0 }, make("summary", {}, "Filter"),
    make("div", { class: "filters" },
      make("label", { class: "grow" }, "Body contains", contains), older.field, younger.field,
      make("label", {}, "Priority", make("span", { class: "pair" }, least, "–", most)),
      make("label", {}, "Tag", tag), clear));
  const get = () => Object.fromEntries(Object.entries({
    older_than: older.get(), younger_than: younger.get(), min_priority: least.value, max_priority: most.value,
    tag: tag.value.trim(), contains: contains.value,
  }).filter(([, value]) => value !== undefined && value !== ""));
  /* A field whose text is not a number has no value, but it is not empty. */
  const fault = () => {
    const wrong = [older.number, younger.number, least, most].find((field) => !field.validity.valid);
    return wrong ? `${wrong.getAttribute("aria-label")}: expected a whole number from 0 to 4294967295.` : null;
  };
  const words = () => {
    const filter = get(), parts = [];
    if (filter.older_than) parts.push(`older than ${older.text()}`);
    if (filter.younger_than) parts.push(`younger than ${younger.text()}`);
    if (filter.min_priority) parts.push(`priority from ${filter.min_priority}`);
    if (filter.max_priority) parts.push(`priority to ${filter.max_priority}`);
    if (filter.tag) parts.push(`tag ${filter.tag}`);
    if (filter.contains) parts.push(`body contains “${filter.contains}”`);
    return parts.length ? `: ${parts.join(", ")}` : ", all in this state";
  };
  return { box, contains, get, words, fault };
}

export function tube(main, changed, name, given, parameters) {
  let state = STATES.includes(given) ? given : null, cursors = [null], next = null, asked = 0;
  let isCheap = true, readOnly = true;
  let figures = null, shown = [], scope = "selected", timer = null, sorting = null;
  /* What the list shows: the key of its filter, the filter, and its words. Null while the fields say something else. */
  let listed = null, wanted = null;
  const selected = new Set();
  const path = tubePath(name);
  const again = () => { isCheap = true; return changed(); };
  const restart = () => {
    isCheap = true;
    asked++; /* ends a search that is under way */
    showBar();
    clearTimeout(timer);
    timer = setTimeout(changed, 250);
  };
  /* Some events come without a change: a field that loses the focus to a button must not replace the button. */
  let noted = null;
  const note = () => { if (noted !== key()) { noted = key(); restart(); } };
  const filter = filters(note, parameters);
  const key = () => JSON.stringify([state, filter.fault(), filter.get()]);
  const isListed = () => listed !== null && listed.key === key();
  const title = make("h1", {}, name), pills = make("span", { class: "row" }), acts = make("span", { class: "row end" });
  const tabs = make("nav", { class: "tabs", "aria-label": "States" });
  const all = make("input", {
    type: "checkbox", "aria-label": "Select all jobs of this page",
    onchange: () => {
      for (const { id } of shown) if (all.checked) selected.add(id); else selected.delete(id);
      showJobs();
    },
  });
  const body = make("tbody");
  const columns = make("tr");
  const empty = make("div", { class: "empty" });
  const before = make("button", { onclick: () => { cursors.pop(); again(); } }, "Back");
  const after = make("button", { onclick: () => { cursors.push(next); again(); } }, "Next");
  const progress = make("span", { class: "faint" });
  const bar = make("div", { class: "card acting row" });
  const searchAgain = make("button", { hidden: true, onclick: again }, "Search again");
  replace(main, make("div", { class: "row" }, title, pills, acts), tabs, filter.box,
    make("div", { class: "row paging" }, progress, searchAgain, make("span", { class: "row end" }, before, after)),
    make("div", { class: "card scroll" }, make("table", { "aria-label": "Jobs" },
      make("thead", {}, columns), body), empty),
    bar);

  function showHead() {
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
      href: tubeLink(name, each, filter.fault() ? {} : filter.get()), class: each,
      "aria-current": each === state ? "page" : null, "data-key": each,
    }, each, make("b", {}, count(figures[`current-jobs-${each}`])))));
  }

  /* The server lists jobs in the order in which they would be served; the page sorts the jobs that it shows. */
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

  function sorted() {
    if (!sorting) return shown;
    const value = COLUMNS[sorting.column][3], sign = sorting.up ? 1 : -1;
    return shown.toSorted((a, b) => {
      const [x, y] = [value(a), value(b)];
      return sign * (x < y ? -1 : x > y ? 1 : 0);
    });
  }

  function showJobs() {
    replace(body, sorted().map((job) => {
      const box = make("input", {
        type: "checkbox", checked: selected.has(job.id), "aria-label": `Select job ${job.id}`,
        "data-key": `select-${job.id}`,
        onchange: () => { if (box.checked) selected.add(job.id); else selected.delete(job.id); showJobs(); },
      });
      return make("tr", { class: selected.has(job.id) ? "selected" : "" }, make("td", { class: "check" }, box),
        COLUMNS.map(([, where, content]) => {
          const value = content(job);
          return make("td", { class: `${where} ${value === "0" || value === "–" ? "zero" : ""}` }, value);
        }));
    }));
    all.checked = shown.length > 0 && shown.every(({ id }) => selected.has(id));
    all.disabled = shown.length === 0;
    showBar();
  }

  function showBar() {
    bar.hidden = readOnly;
    const number = selected.size;
    const act = (action) => {
      if (scope === "selected") return changeSelected(action, [...selected], () => { selected.clear(); again(); });
      /* The fields may have changed since the buttons were drawn: only the jobs that the list shows are changed. */
      if (!isListed()) return restart();
      return changeMatching(action, name, listed.filter, listed.words, again);
    };
    const choice = (value, text) => make("button", {
      "aria-pressed": String(scope === value), "data-key": value, onclick: () => { scope = value; showBar(); },
    }, text);
    replace(bar,
      make("span", { class: "segments", role: "group", "aria-label": "On which jobs" },
        choice("selected", `${whole.format(number)} selected`), choice("matching", "All that match")),
      changeButtons(state, shown.some((job) => job["dead-from"]), act,
        scope === "selected" ? number === 0 : !isListed()));
  }

  /* The list for another filter begins at its first page, with nothing selected; the address has the filter. */
  function begin(filterKey) {
    wanted = noted = filterKey;
    listed = null;
    shown = [];
    cursors = [null];
    selected.clear();
    const link = tubeLink(name, state, filter.fault() ? {} : filter.get());
    if (given || Object.keys(filter.get()).length || location.hash.includes("?")) history.replaceState(null, "", link);
  }

  /* A filter with a fault has no list. */
  function refuse(reason) {
    listed = null;
    shown = [];
    progress.textContent = "";
    before.parentNode.hidden = true;
    empty.hidden = false;
    empty.textContent = reason;
    showJobs();
  }

  showColumns();

  async function refresh(server) {
    readOnly = server.read_only;
    try {
      figures = await get(path);
    } catch (error) {
      if (error.status !== 404) throw error;
      figures = null;
      replace(main, make("h1", {}, name), make("p", { class: "empty" },
        "There is no such tube. A tube exists while it has jobs, or while a client uses or watches it."));
      return;
    }
    /* Buried jobs come first, because they need an operator. */
    state ??= ["buried", "ready", "delayed", "reserved"].find((each) => figures[`current-jobs-${each}`] > 0) ?? "ready";
    if (!main.contains(tabs)) {
      replace(main, make("p", { class: "empty" },
        make("a", { href: tubeLink(name), onclick: () => location.reload() }, "The tube exists again.")));
    }
    showHead();
    const now = key();
    if (wanted !== now) {
      begin(now);
      isCheap = true;
    }
    searchAgain.hidden = isCheap;
    if (filter.fault()) return refuse(filter.fault());
    if (!isCheap) return;
    const number = ++asked;
    const parameters = { state, ...filter.get() }, words = filter.words();
    let answer, cursor = cursors.at(-1), examined = 0;
    /* The server examines a bounded number of jobs for each answer: the search goes on until a job matches. */
    do {
      try {
        answer = await get(`${path}/jobs`, { ...parameters, limit: PAGE, cursor, body_bytes: PREVIEW_BYTES });
      } catch (error) {
        if (error.status !== 400) throw error;
        if (number === asked) refuse(error.message);
        return;
      }
      if (number !== asked || !main.isConnected) return;
      examined += answer.looked_at;
      cursor = answer.next;
      if (!answer.jobs.length && cursor !== null) progress.textContent = `Examined ${whole.format(examined)} jobs…`;
    } while (!answer.jobs.length && cursor !== null);
    isCheap = examined <= CHEAP_LIST;
    searchAgain.hidden = isCheap;
    listed = { key: now, filter: parameters, words };
    shown = answer.jobs;
    next = answer.next;
    before.disabled = cursors.length === 1;
    after.disabled = next === null;
    after.textContent = next !== null && shown.length < PAGE ? "Continue the search" : "Next";
    before.parentNode.hidden = before.disabled && after.disabled;
    const isFiltered = Object.keys(parameters).length > 1;
    empty.hidden = shown.length > 0;
    empty.textContent = isFiltered ? "No job matches." : `No ${state} jobs.`;
    progress.textContent = isFiltered && examined > shown.length ? `Examined ${whole.format(examined)} jobs.` : "";
    showJobs();
  }
  return {
    refresh, hasPut: true, title: name, search: filter.contains,
    beforeSearch: () => { filter.box.open = true; },
  };
}
