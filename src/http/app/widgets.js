// Elements, formats and plots. Texts only ever become text nodes.
export const STATES = ["ready", "reserved", "delayed", "buried"];
export const at = (id) => document.getElementById(id);
export const whole = new Intl.NumberFormat("en");
const rounded = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const rate = (n) => n >= 100 ? whole.format(Math.round(n)) : rounded.format(n);
export const count = (n) => n >= 1e7 ? compact.format(n) : whole.format(n);
export const jobs = (n) => `${whole.format(n)} ${n === 1 ? "job" : "jobs"}`;
export const tubePath = (name) => `tubes/${encodeURIComponent(name)}`;
export const tubeLink = (name, state) => `#/tube/${encodeURIComponent(name)}${state ? `/${state}` : ""}`;

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

/** An element with properties and children; a string becomes a text node, and what is null or false is left out. */
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

export function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A line through points of [x, value]; the largest value is at the top. */
function line(points, width, className) {
  const top = Math.max(...points.map((point) => point[1]), 0);
  const y = (value) => (top ? 98 - 94 * value / top : 98).toFixed(1);
  const path = points.map(([x, value], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y(value)}`).join("");
  const parts = [drawn("line", { class: "base", x1: 0, x2: width, y1: 99, y2: 99 })];
  if (points.length > 1) {
    parts.push(drawn("path", { class: "area", d: `${path}V98H${points[0][0].toFixed(1)}Z` }), drawn("path", { class: "line", d: path }));
  }
  return drawn("svg", { class: className, viewBox: `0 0 ${width} 100`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...parts);
}

export const spark = (values, className) => {
  const step = 100 / Math.max(values.length - 1, 1);
  const plot = line(values.map((value, i) => [i * step, value]), 100, "spark");
  plot.classList.add(className);
  return plot;
};

/** A card with a number and a plot of points [age in ms, value] of the last ten minutes. */
export function card(title, className, unit, now, points, format) {
  const WINDOW_MS = 600000, MINUTE_MS = 60000;
  const top = Math.max(...points.map((point) => point[1]), 0);
  const oldest = points.length ? points[0][0] : 0;
  const span = oldest < MINUTE_MS ? `${Math.round(oldest / 1000)} s` : `${Math.round(oldest / MINUTE_MS)} min`;
  return make("article", { class: `card ${className}` },
    make("h3", {}, title),
    make("div", {}, make("span", { class: "value" }, format(now)), make("span", { class: "unit" }, unit)),
    line(points.map(([age, value]) => [100 * (1 - age / WINDOW_MS), value]), 100, "plot"),
    make("div", { class: "scale" }, make("span", {}, `max ${format(top)}`), make("span", {}, points.length ? `last ${span}` : "")));
}

export const definitions = (pairs) => make("dl", { class: "card" },
  pairs.map(([title, value]) => make("div", {}, make("dt", {}, title), make("dd", {}, value))));

/** Replaces the children of `parent`, and gives the focus back to what had it and has the same data-key. */
export function replace(parent, ...children) {
  const key = document.activeElement?.dataset?.key;
  const inside = key && parent.contains(document.activeElement);
  parent.replaceChildren(...children.flat().filter(Boolean));
  if (inside) [...parent.querySelectorAll("[data-key]")].find((found) => found.dataset.key === key)?.focus({ preventScroll: true });
}
