// The filter of a list of jobs: its fields, its parameters for the API, and its words.
import { make } from "./figures.js";

const UNITS = [["1", "seconds"], ["60", "minutes"], ["3600", "hours"], ["86400", "days"]];

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
export function filters(changed, given) {
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
