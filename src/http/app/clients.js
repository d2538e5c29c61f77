// The view of the clients: their connections, what each one does and has reserved, and the action that closes one.
import { bytes, duration, make, whole } from "./figures.js";
import { replace, tubeLink } from "./widgets.js";
import { get } from "./api.js";
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

export function clients(main, changed) {
  let cursors = [null], next = null, asked = 0;
  const title = make("h1", {}, "Clients"), body = make("tbody");
  const before = make("button", { onclick: () => { cursors.pop(); changed(); } }, "Back");
  const after = make("button", { onclick: () => { cursors.push(next); changed(); } }, "Next");
  const empty = make("div", { class: "empty", hidden: true }, "Nobody is connected.");
  const titles = COLUMNS.map(([text, where]) => make("th", { scope: "col", class: where }, text));
  const end = (client) => make("button", {
    class: "plain", "data-key": `kill-${client.id}`, onclick: () => killClient(client, changed),
  }, "End…");
  replace(main, make("div", { class: "row space" }, title, make("span", { class: "row end" }, before, after)),
    make("div", { class: "card scroll" }, make("table", { "aria-label": "Clients" },
      make("thead", {}, make("tr", {}, titles, make("th", { scope: "col", "aria-label": "Actions" }, ""))),
      body), empty));

  async function refresh(server) {
    const number = ++asked;
    const answer = await get("clients", { limit: PAGE, cursor: cursors.at(-1) });
    /* A newer request has made this answer obsolete. */
    if (number !== asked) return;
    next = answer.next;
    title.textContent = `Clients (${whole.format(server.stats["current-connections"])})`;
    before.disabled = cursors.length === 1;
    after.disabled = next === null;
    before.parentNode.hidden = before.disabled && after.disabled;
    empty.hidden = answer.clients.length > 0;
    replace(body, answer.clients.map((client) => make("tr", {},
      COLUMNS.map(([, where, cell]) => make("td", { class: where }, cell(client))),
      make("td", {}, server.read_only ? "" : end(client)))));
  }
  return { refresh, title: "Clients" };
}
