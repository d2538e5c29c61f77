// What the status page and the administration page share: formats, elements, plots, and the table of tubes. Strings
// only become text nodes, never markup.
export const STATES = ["ready", "reserved", "delayed", "buried"];
export const RATES = [
  ["total-jobs", "put"], ["job-reserves", "reserved"], ["job-deletes", "deleted"], ["job-timeouts", "timed out"],
];
/* The counters of tubes of which the rate is shown, and the times, each with what must not be zero for it to run. */
const TUBE_RATES = ["total-jobs", "cmd-delete"];
const TIMES = { "pause-time-left": "pause", "oldest-ready-age": "current-jobs-ready" };
const WINDOW_MS = 600000, MINUTE_MS = 60000, SPARKS = 60;
/* A rate over a shorter time would jump: a page asks again after each key in the search, and after each action. */
const MIN_SAMPLE_MS = 1500;
/* The last samples of tubes. If there are many, those not shown for a minute are removed. */
const seen = new Map();

export const at = (id) => document.getElementById(id);
export const whole = new Intl.NumberFormat("en");
export const rounded = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const rate = (n) => n >= 100 ? whole.format(Math.round(n)) : rounded.format(n);
export const count = (n) => n >= 1e7 ? compact.format(n) : whole.format(n);
const span = (ms) => ms < MINUTE_MS ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / MINUTE_MS)} min`;

/** A time in seconds with its two largest units. */
export function duration(s) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([unit]) => s >= unit);
  if (first < 0) return "0 s";
  return parts.slice(first, first + 2).map(([unit, name], i) => {
    const n = Math.floor(i ? (s % parts[first][0]) / unit : s / unit);
    return n ? `${n} ${name}` : "";
  }).join(" ").trim();
}

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  for (; n >= 1024 && unit < 3; unit++) n /= 1024;
  return `${rounded.format(n)} ${units[unit]}`;
}

/** An element with properties and children. A string becomes a text node; null, undefined and false are left out. */
export function make(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key.includes("-") || key === "role" || key === "list" || key === "for") made.setAttribute(key, value);
    else if (key === "class") made.className = value;
    else made[key] = value;
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** A title and its value in a list of definitions. */
export const definition = ([title, value]) => make("div", {}, make("dt", {}, title), make("dd", {}, value));

/** Replaces the children of `parent`, and focuses the new element with the data-key of the focused one. */
export function replace(parent, ...children) {
  const key = document.activeElement?.dataset?.key;
  const inside = key && parent.contains(document.activeElement);
  parent.replaceChildren(...children.flat().filter(Boolean));
  if (!inside) return;
  const keyed = [...parent.querySelectorAll("[data-key]")];
  keyed.find((found) => found.dataset.key === key)?.focus({ preventScroll: true });
}

/**
 * Fills the row `head` with the heads of columns [key, title, class]. A click on one changes `sorting`, and calls
 * `changed`. A column without a key cannot be sorted.
 */
export function heads(head, columns, sorting, changed) {
  const sort = (key) => {
    Object.assign(sorting, { key, up: key === sorting.key ? !sorting.up : key === "name" });
    heads(head, columns, sorting, changed);
    changed();
  };
  replace(head, columns.map(([key, title, where = ""]) => make("th", {
    scope: "col", class: where,
    "aria-sort": key === sorting.key ? (sorting.up ? "ascending" : "descending") : null,
  }, key === null ? title : make("button", { "data-key": `sort-${key}`, onclick: () => sort(key) }, title))));
}

/** Notes samples of tubes, for their rates and small plots. */
export function note(tubes) {
  const now = performance.now();
  for (const tube of tubes) {
    const old = seen.get(tube.name);
    if (old && now - old.at < MIN_SAMPLE_MS) continue;
    const per = (key) => [key, old ? Math.max(0, tube[key] - old.tube[key]) * 1000 / (now - old.at) : null];
    const recent = [...(old?.recent ?? []), tube["current-jobs-ready"]].slice(-SPARKS);
    seen.set(tube.name, { at: now, tube, recent, rates: Object.fromEntries(TUBE_RATES.map(per)) });
  }
  if (seen.size > 5000) for (const [name, { at }] of seen) if (now - at > 60000) seen.delete(name);
}

/** The number in a column of a tube that was noted: for a counter of TUBE_RATES its rate, null after one sample. */
export const figure = (tube, key) => TUBE_RATES.includes(key) ? seen.get(tube.name).rates[key] : tube[key];

/** The text of a column of a tube, and whether it is nothing. */
function cell(tube, key) {
  const value = figure(tube, key);
  if (value === null || key in TIMES && !tube[TIMES[key]]) return ["–", true];
  if (key in TIMES) return [duration(value), false];
  return [(TUBE_RATES.includes(key) ? rate : count)(value), value === 0];
}

/** The rows of noted tubes. `named` makes the cell of a name, `plot` the content of a column without a key. */
export function rows(tubes, columns, named, plot) {
  return tubes.map((tube) => make("tr", {}, columns.map(([key, , where = ""]) => {
    if (key === "name") return named(tube);
    const [content, isNothing] = key === null ? [plot(seen.get(tube.name).recent), false] : cell(tube, key);
    const look = isNothing ? "zero" : key === "current-jobs-buried" ? "alarm" : "";
    return make("td", { class: `${where} ${look}` }, content);
  })));
}

/** An SVG element. */
export function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The parts of a line plot of points [x, value], from 0 at the bottom to the largest value at the top. */
export function line(points, width) {
  const top = Math.max(...points.map((point) => point[1]), 0);
  const y = (value) => (top ? 98 - 94 * value / top : 98).toFixed(1);
  const path = points.map(([x, value], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y(value)}`).join("");
  const parts = [drawn("line", { class: "base", x1: 0, x2: width, y1: 99, y2: 99 })];
  if (points.length > 1) {
    parts.push(
      drawn("path", { class: "area", d: `${path}V98H${points[0][0].toFixed(1)}Z` }),
      drawn("path", { class: "line", d: path }));
  }
  return parts;
}

/**
 * A card with a number and a plot of the last ten minutes. The pointer marks a point. `show` takes the number, the
 * points [age in ms, value] from the oldest to the newest, and the format of values.
 */
export function card(title, className, unit) {
  const value = make("span", { class: "value" }, "–"), left = make("span"), right = make("span");
  const plot = drawn("svg", {
    class: "plot", viewBox: `0 0 ${WINDOW_MS} 100`, preserveAspectRatio: "none", role: "img",
  });
  const box = make("article", { class: `card ${className}` }, make("h3", {}, title),
    make("div", {}, value, make("span", { class: "unit" }, unit)), plot, make("div", { class: "scale" }, left, right));
  let points = [], format = String, pointer = null;
  function mark() {
    plot.querySelector(".mark")?.remove();
    if (pointer === null || !points.length) return false;
    const frame = plot.getBoundingClientRect();
    const age = WINDOW_MS * (1 - (pointer - frame.left) / frame.width);
    const nearest = points.reduce((a, b) => Math.abs(b[0] - age) < Math.abs(a[0] - age) ? b : a);
    const x = WINDOW_MS - nearest[0];
    plot.append(drawn("line", { class: "mark", x1: x, x2: x, y1: 0, y2: 100 }));
    left.textContent = format(nearest[1]);
    right.textContent = `${span(nearest[0])} ago`;
    return true;
  }
  function draw() {
    const top = format(Math.max(...points.map((point) => point[1]), 0));
    plot.replaceChildren(...line(points.map(([age, n]) => [WINDOW_MS - age, n]), WINDOW_MS));
    plot.setAttribute("aria-label", `${title}: ${value.textContent} ${unit}, at most ${top} in ten minutes`);
    if (!mark()) {
      left.textContent = `max ${top}`;
      right.textContent = points.length ? `last ${span(points[0][0])}` : "";
    }
  }
  plot.addEventListener("pointermove", (event) => { pointer = event.clientX; mark(); });
  plot.addEventListener("pointerleave", () => { pointer = null; draw(); });
  return { box, show: (now, next, text) => { value.textContent = text(now); points = next; format = text; draw(); } };
}

/** The cards of the jobs by state and of the rates, and a function that shows the figures of the server in them. */
export function cards() {
  const states = STATES.map((state) => card(state, state, "jobs"));
  const rates = RATES.map(([, title]) => card(title, "rate", "/s"));
  function show({ stats, history }) {
    const series = (key) => history[key].map((value, i) => [history.ages_ms[i], value]);
    STATES.forEach((state, i) => {
      const key = `current-jobs-${state}`;
      states[i].show(stats[key], [...series(key), [0, stats[key]]], count);
    });
    RATES.forEach(([key], i) => {
      const samples = series(key);
      /* The events since the last sample count if the time is long enough for a rate. */
      if (samples.length && samples.at(-1)[0] > 1500) samples.push([0, stats[key]]);
      const points = samples.slice(1).map(([age, value], k) =>
        [age, Math.max(0, (value - samples[k][1]) * 1000 / (samples[k][0] - age))]);
      rates[i].show(points.at(-1)?.[1] ?? 0, points, rate);
    });
  }
  return { states: states.map(({ box }) => box), rates: rates.map(({ box }) => box), show };
}
