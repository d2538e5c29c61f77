// Elements of the administration page: links, small plots, lists.
import { definition, drawn, line, make, whole } from "./figures.js";

export const jobs = (n) => `${whole.format(n)} ${n === 1 ? "job" : "jobs"}`;
/* A browser resolves `.` and `..` in a path, unless their escapes are escaped once more. */
const segment = (name) => name === "." || name === ".." ? name.replaceAll(".", "%252E") : encodeURIComponent(name);
export const tubePath = (name) => `tubes/${segment(name)}`;
/** The address of a tube, with the parameters of a filter. */
export function tubeLink(name, state, filter = {}) {
  const query = new URLSearchParams(filter).toString();
  return `#/tube/${encodeURIComponent(name)}${state ? `/${state}` : ""}${query && `?${query}`}`;
}

/** A small plot of values at equal distances. */
export function spark(values, className) {
  const step = 100 / Math.max(values.length - 1, 1);
  const parts = line(values.map((value, i) => [i * step, value]), 100);
  return drawn("svg", {
    class: `spark ${className}`, viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true",
  }, ...parts);
}

/** The tags of a job, as `put` takes them. A job that was reserved once has no tag exp any more. */
export const tagsOf = (job) => [
  job["idempotency-key"]
    && `idp:${job["idempotency-key"]}${job["idempotency-ttl"] ? `:${job["idempotency-ttl"]}` : ""}`,
  job["concurrency-key"]
    && `con:${job["concurrency-key"]}${job["concurrency-limit"] > 1 ? `:${job["concurrency-limit"]}` : ""}`,
  job.group && `grp:${job.group}`,
  job["after-group"] && `aft:${job["after-group"]}`,
  job["expires-in"] && `exp:${job.age + job["expires-in"]}`,
  job.trace && `trc:${job.trace}`,
].filter(Boolean);

/** The buttons that turn the pages of a list. The first page has the number 0. */
export function pager(changed) {
  /* `asked` is `cursors` as it was at the last request. */
  let cursors = [null], asked = null, next = null, isTurning = false;
  const turn = (to) => {
    /* The second click of a double click comes before the page that the first one asked for. */
    if (isTurning) return;
    isTurning = true;
    cursors = to();
    changed();
  };
  const before = make("button", { onclick: () => turn(() => cursors.slice(0, -1)) }, "Back");
  const after = make("button", { onclick: () => turn(() => [...cursors, next]) }, "Next");
  const box = make("span", { class: "row end", hidden: true }, before, after);
  const restart = () => { cursors = [null]; isTurning = true; };
  /* Returns whether the answer is that of this page: its request may have been under way at a click. */
  const show = (following, text = "Next") => {
    if (asked !== cursors) return false;
    isTurning = false;
    next = following;
    before.disabled = cursors.length === 1;
    after.disabled = next === null;
    after.textContent = text;
    box.hidden = before.disabled && after.disabled;
    return true;
  };
  const cursor = () => {
    asked = cursors;
    return cursors.at(-1);
  };
  return { box, cursor, number: () => cursors.length - 1, restart, show };
}

export const definitions = (pairs) => make("dl", { class: "card" }, pairs.map(definition));

/** The bytes of a body. */
export function bytesOf(body) {
  if (body.encoding === "text") return new TextEncoder().encode(body.data);
  return Uint8Array.from(atob(body.data), (char) => char.charCodeAt(0));
}
