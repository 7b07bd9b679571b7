/** The tool calls of an answer, with boxes for their results. */

import { button, create, setText } from "./dom.js";

/** Shows tool calls; `sendResults` gets the texts of the results in the order of the calls. */
export class ToolCallsView {
  #cards = [];
  #send;
  #buttons;

  constructor(sendResults) {
    this.#send = button(
      "Send results",
      () => sendResults(this.#cards.map((card) => card.result.value)),
      { className: "primary" },
    );
    this.#buttons = create("div", { className: "call-buttons" }, this.#send);
    this.element = create("div", { className: "calls" }, this.#buttons);
  }

  /** Shows the calls; results can be typed if `isWaiting`. */
  update(calls, isWaiting) {
    calls.forEach((call, index) => {
      if (!this.#cards[index]) this.#add(index);
      const card = this.#cards[index];
      setText(card.name, call.name);
      setText(card.arguments, indented(call.arguments));
      card.label.hidden = !isWaiting;
    });
    setText(this.#send, calls.length === 1 ? "Send result" : "Send results");
    this.#buttons.hidden = !isWaiting;
  }

  focus() {
    this.#cards[0].result.focus();
  }

  #add(index) {
    const name = create("code");
    const code = create("code");
    const result = create("textarea", { rows: 2, className: "code", spellcheck: false });
    const label = create("label", {}, `Result of call ${index + 1}`, result);
    this.#cards[index] = { name, arguments: code, result, label };
    const title = create("h4", {}, "Calls ", name);
    this.#buttons.before(create("div", { className: "call" }, title, create("pre", {}, code), label));
  }
}

export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Returns JSON with indentation; what is not (yet) JSON stays as it is. */
export function indented(json) {
  return isJson(json) ? JSON.stringify(JSON.parse(json), null, 2) : json;
}
