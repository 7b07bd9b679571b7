/** The fields of the settings, kept in the browser's storage; the API key is none of them. */

import { byId } from "./dom.js";

const KEY = "aiomlc-settings";

const fields = () => [...byId("panel").querySelectorAll(".pane :is(input[id], select, textarea, input[name])")];
const isChoice = (field) => field.type === "checkbox" || field.type === "radio";
const nameOf = (field) => field.id || `${field.name}=${field.value}`;

export function saveFields() {
  const values = fields().map((field) => [nameOf(field), isChoice(field) ? field.checked : field.value]);
  try {
    localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(values)));
  } catch {
    // No room: the settings last as long as the page.
  }
}

/** Fills in the fields as if they were typed; those that are checked last, as typing may check one. */
export function restoreFields() {
  const values = new Map(Object.entries(JSON.parse(localStorage.getItem(KEY)) ?? {}));
  const known = fields().filter((field) => values.has(nameOf(field)));
  for (const field of known.sort((first, second) => isChoice(first) - isChoice(second))) {
    if (isChoice(field)) field.checked = values.get(nameOf(field));
    else field.value = values.get(nameOf(field));
    for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }));
  }
}
