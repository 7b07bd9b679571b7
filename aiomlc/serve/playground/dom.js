/** Helpers for elements. Text is only ever set as text, never parsed as HTML. */

/** Returns the element with an id of the page. */
export const byId = (id) => document.getElementById(id);

/**
 * Creates an element.
 *
 * `properties` are assigned to it, but `on` holds listeners by event, `data` and `attributes`
 * what their names say. Children are nodes, strings or arrays of them.
 */
export function create(tag, properties = {}, ...children) {
  const { on = {}, data = {}, attributes = {}, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  Object.assign(element.dataset, data);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  // One by one: there may be more of them than a call can have arguments.
  for (const child of children.flat()) element.append(child);
  return element;
}

/** Creates a button that submits nothing. */
export function button(text, onClick, properties = {}) {
  return create("button", { type: "button", textContent: text, on: { click: onClick }, ...properties });
}

/** Sets the text of an element unless it has this text, which would lose a selection in it. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows a problem with a field below it, or removes it if there is none. */
export function showFieldError(field, errorElement, message) {
  setText(errorElement, message ?? "");
  errorElement.hidden = !message;
  if (message) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
}
