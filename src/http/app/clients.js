// The view of the clients: their connections, what each one does and has reserved, and the action that closes one.
import { bytes, duration, make, replace, whole } from "./figures.js";
import { pager, tubeLink } from "./widgets.js";
import { killClient } from "./actions.js";

const PAGE = 100;
const COLUMNS = [
  ["Client", "left", (client) => String(client.id)],
  ["Address", "left", (client) => client.address],
  ["Identity", "left wide", (client) => client.identity || "–"],
  ["Session", "left", (client) => client.session || "–"],
  ["State", "left", (client) => client.state === "waiting" ? `waiting for ${duration(client.waiting)}` : client.state],
  ["Uses", "left wide",
    (client) => make("a", { href: tubeLink(client.using), "data-key": `uses-${client.id}` }, client.using)],
  ["Age", "", (client) => duration(client.age)],
  ["Idle", "", (client) => duration(client.idle)],
  ["Watches", "wide", (client) => whole.format(client.watching)],
  ["Holds", "", (client) => whole.format(client.reserved)],
  ["Memory", "wide", (client) => bytes(client["bytes-held"])],
  ["Commands", "wide", (client) => whole.format(client.commands)],
];

export function clients({ main, changed, read }) {
  const pages = pager(changed);
  const title = make("h1", {}, "Clients"), body = make("tbody");
  const empty = make("div", { class: "empty", hidden: true }, "Nobody is connected.");
  const titles = COLUMNS.map(([text, where]) => make("th", { scope: "col", class: where }, text));
  const end = (client) => make("button", {
    class: "plain", "data-key": `kill-${client.id}`, onclick: () => killClient(client, changed),
  }, "End…");
  replace(main, make("div", { class: "row space" }, title, pages.box),
    make("div", { class: "card scroll" }, make("table", { "aria-label": "Clients" },
      make("thead", {}, make("tr", {}, titles, make("th", { scope: "col", "aria-label": "Actions" }, ""))),
      body), empty));

  async function refresh(server) {
    const answer = await read("clients", { limit: PAGE, cursor: pages.cursor() });
    if (!pages.show(answer.next)) return;
    title.textContent = `Clients (${whole.format(server.stats["current-connections"])})`;
    empty.hidden = answer.clients.length > 0;
    replace(body, answer.clients.map((client) => make("tr", {},
      COLUMNS.map(([, where, cell]) => make("td", { class: where }, cell(client))),
      make("td", {}, server.read_only ? "" : end(client)))));
  }
  return { refresh, title: "Clients" };
}
