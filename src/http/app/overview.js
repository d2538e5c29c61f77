// The first view: the figures of the server and its tubes.
import { cards, duration, heads, make, note, replace, rows, whole } from "./figures.js";
import { definitions, pager, spark, tubeLink } from "./widgets.js";

const PAGE = 100;
const COLUMNS = [
  ["name", "Tube", "left"], ["current-jobs-ready", "Ready"], ["current-jobs-reserved", "Reserved", "wide"],
  ["current-jobs-delayed", "Delayed", "wide"], ["current-jobs-buried", "Buried"], ["total-jobs", "Put/s", "wide"],
  ["cmd-delete", "Deleted/s", "wide"], ["oldest-ready-age", "Oldest ready"], ["current-waiting", "Waiting", "wide"],
  ["pause-time-left", "Pause", "wide"], [null, "Ready, recent", "wide"],
];

const named = ({ name }) => make("td", { class: "name left" },
  make("a", { href: tubeLink(name), title: name, "data-key": `tube-${name}` }, name));
const plot = (recent) => spark(recent, "ready");

export function overview({ main, changed, read }) {
  /* Tubes with buried jobs come first, because buried jobs need an operator. */
  const sorting = { key: "current-jobs-buried", up: false };
  let search = "";
  const pages = pager(changed);
  const plots = cards();
  const states = make("section", { class: "grid", "aria-label": "Jobs by state" }, plots.states);
  const rates = make("section", { class: "grid", "aria-label": "Rates of the last ten minutes" }, plots.rates);
  const about = make("section", { "aria-label": "About the server" });
  const title = make("h2", {}, "Tubes");
  const found = make("span", { class: "faint" });
  /* Escape empties the field with the event "search" alone. */
  const changedSearch = () => { search = field.value.trim(); pages.restart(); changed(); };
  const field = make("input", {
    type: "search", id: "search", placeholder: "Search tubes: text or mail-*", "aria-label": "Search tubes",
    oninput: changedSearch, onsearch: changedSearch,
  });
  const head = make("tr"), body = make("tbody");
  const empty = make("div", { class: "empty", hidden: true }, "No tube matches.");
  replace(main, states,
    make("div", { class: "row space" }, title, field, found, pages.box),
    make("div", { class: "card scroll" },
      make("table", { "aria-label": "Tubes" }, make("thead", {}, head), body), empty),
    make("h2", {}, "Rates of the last ten minutes"), rates, make("h2", {}, "Server"), about);

  async function list() {
    const answer = await read("tubes", {
      sort: sorting.key, order: sorting.up ? "ascending" : "descending", search, limit: PAGE, cursor: pages.cursor(),
    });
    if (!pages.show(answer.next)) return;
    note(answer.tubes);
    title.textContent = `Tubes (${whole.format(answer.total)})`;
    const first = pages.number() * PAGE;
    found.textContent = [
      search && `${whole.format(answer.matched)} found`,
      answer.matched > PAGE && answer.tubes.length
        && `${whole.format(first + 1)} to ${whole.format(first + answer.tubes.length)}`,
    ].filter(Boolean).join(", ");
    empty.hidden = answer.tubes.length > 0;
    replace(body, rows(answer.tubes, COLUMNS, named, plot));
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
  heads(head, COLUMNS, sorting, () => { pages.restart(); changed(); });
  return { refresh, title: "Tubes", search: field };
}
