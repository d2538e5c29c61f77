// The status page: asks for the figures every two seconds, and shows them.
import {
  STATES, at, bytes, cards, definition, drawn, duration, figure, heads, make, note, rounded, rows, whole,
} from "./figures.js";

const REFRESH_MS = 2000, REQUEST_TIMEOUT_MS = 10000, TUBES = 500;
const CONNECTIONS = [
  ["current-connections", "connected"], ["current-producers", "producers"], ["current-workers", "workers"],
  ["current-waiting", "waiting in a reserve"], ["total-connections", "since the start"],
  ["connections-refused", "refused"],
];
const BINLOG = [
  ["binlog-state", "state"], ["binlog-files", "files"], ["binlog-bytes", "on disk"], ["binlog-live-bytes", "live"],
  ["binlog-oldest-index", "oldest file"], ["binlog-current-index", "current file"],
  ["binlog-records-written", "records written"], ["binlog-records-migrated", "moved by compaction"],
  ["binlog-syncs", "syncs"], ["mean-sync", "mean sync"],
];
const COLUMNS = [["name", "Tube"], ["current-jobs-ready", "Ready"], ["current-jobs-reserved", "Reserved"],
  ["current-jobs-delayed", "Delayed"], ["current-jobs-buried", "Buried"], ["total-jobs", "Put/s"],
  ["cmd-delete", "Deleted/s"], ["current-waiting", "Waiting"], ["current-watching", "Watching"],
  ["current-using", "Using"], ["job-timeouts", "Timeouts"], ["pause-time-left", "Pause left"]];
const sorting = { key: "current-jobs-ready", up: false };
let last = null, shown = [], asked = 0;
const plots = cards();
at("jobs").append(...plots.states);
at("rates").append(...plots.rates);

function showBar(stats) {
  const numbers = STATES.map((state) => stats[`current-jobs-${state}`]);
  const sum = numbers.reduce((a, b) => a + b, 0);
  let x = 0;
  at("bar").replaceChildren(...numbers.map((n, i) => {
    const width = sum ? 1000 * n / sum : 0;
    const part = drawn("rect", { class: STATES[i], x, width, y: 0, height: 1 });
    x += width;
    return part;
  }));
}
function showList(id, keys, stats, format) {
  at(id).replaceChildren(...keys.filter(([key]) => key in stats).map(([key, title]) =>
    definition([title, format(key, stats[key])])));
}
function showTubes() {
  const wanted = at("filter").value.trim().toLowerCase();
  const { key, up } = sorting;
  const byName = (a, b) => a.name.localeCompare(b.name, "en", { numeric: true });
  const order = key === "name" ? byName : (a, b) => figure(a, key) - figure(b, key);
  const found = shown.filter((tube) => tube.name.toLowerCase().includes(wanted))
    .sort((a, b) => (up ? order(a, b) : order(b, a)) || byName(a, b));
  const named = ({ name }) => make("td", { title: name }, name);
  at("tubes").replaceChildren(...rows(found, COLUMNS, named));
}
function show(data) {
  const { stats } = data;
  const trouble = [stats.draining && "draining", stats["binlog-state"] === "full" && "binlog full",
    stats["binlog-state"] === "failed" && "binlog failed"].filter(Boolean).join(", ");
  at("state").textContent = trouble || "serving";
  at("state").className = trouble ? "bad" : "";
  at("host").textContent = stats.hostname;
  at("version").textContent = `version ${stats.version}`;
  at("uptime").textContent = `up ${duration(stats.uptime)}`;
  document.title = `${whole.format(stats["current-jobs-ready"])} ready – beanstalkd on ${stats.hostname}`;
  showBar(stats);
  plots.show(data);
  showList("connections", CONNECTIONS, stats, (_, value) => whole.format(value));
  if (stats["binlog-current-index"]) {
    const mean_ms = stats["binlog-syncs"] ? stats["binlog-sync-microseconds"] / stats["binlog-syncs"] / 1000 : 0;
    showList("binlog", BINLOG, { ...stats, "mean-sync": mean_ms }, (key, value) => typeof value !== "number" ? value
      : key === "mean-sync" ? `${rounded.format(value)} ms`
      : key.endsWith("bytes") ? bytes(value) : whole.format(value));
  } else {
    at("binlog").replaceChildren(make("dt", { class: "note" }, "None: jobs are in memory only."));
  }
  at("tubes-title").textContent = `Tubes (${whole.format(stats["current-tubes"])})`;
  const found = whole.format(data.matched);
  at("omitted").textContent = data.matched > data.tubes.length
    ? `the first ${whole.format(data.tubes.length)} of ${found} are shown; sort or filter to see others`
    : data.filter ? `${found} found` : "";
  note(data.tubes);
  shown = data.tubes;
  showTubes();
  last = data;
}
async function get(path) {
  const response = await fetch(`api/v1/${path}`, { signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
  if (response.ok) return response.json();
  /* A server that starts answers with a plain text. */
  throw new Error(response.status === 503 ? await response.text() : (await response.json()).message);
}
async function refresh() {
  if (document.hidden) return;
  const number = ++asked, search = at("filter").value.trim();
  const query = new URLSearchParams({
    sort: sorting.key, order: sorting.up ? "ascending" : "descending", search, limit: TUBES,
  });
  try {
    const [server, tubes] = await Promise.all([get("server"), get(`tubes?${query}`)]);
    /* A newer request has made this answer obsolete. */
    if (number !== asked) return;
    const data = { ...server, ...tubes, filter: search };
    document.body.classList.remove("stale");
    show(data);
  } catch (error) {
    if (number !== asked) return;
    const isUnreachable = error instanceof TypeError || error instanceof DOMException;
    const trouble = isUnreachable ? "not reachable" : error.message.trim() || "failed";
    at("state").textContent = trouble;
    at("state").className = "bad";
    document.body.classList.add("stale");
    document.title = `${trouble} – beanstalkd${last ? ` on ${last.stats.hostname}` : ""}`;
  }
}
async function run() {
  for (;;) {
    await refresh();
    await new Promise((resume) => setTimeout(resume, REFRESH_MS));
  }
}
at("filter").addEventListener("input", () => { showTubes(); refresh(); });
document.addEventListener("visibilitychange", refresh);
heads(at("head"), COLUMNS, sorting, () => { showTubes(); refresh(); });
run();
