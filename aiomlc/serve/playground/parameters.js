/** The numeric sampling parameters, with the ranges of the API, and their fields on the page. */

import { create, showFieldError } from "./dom.js";

/**
 * `min` and `max` are inclusive, `above` is an exclusive lower limit, `initial` is the value that
 * an empty field stands for unless the model has another one, and `slider` has its `[lowest, highest, step]`.
 */
export const PARAMETERS = [
  { name: "temperature", label: "Temperature", min: 0, initial: 1, slider: [0, 2, 0.05], help: "Divides the logits; 0 always takes the likeliest token." },
  { name: "top_p", label: "Top p", min: 0, max: 1, initial: 1, slider: [0, 1, 0.01], help: "Sample from the likeliest tokens whose probabilities add up to this." },
  { name: "top_k", label: "Top k", min: 0, initial: 0, integer: true, slider: [0, 200, 1], help: "Sample from this many of the likeliest tokens; 0 means all." },
  { name: "min_p", label: "Min p", min: 0, max: 1, initial: 0, slider: [0, 1, 0.01], help: "Sample from tokens at least this likely, relative to the likeliest." },
  { name: "max_tokens", label: "Max tokens", min: 1, integer: true, help: "The most tokens of an answer; empty means up to the end of the context." },
  { name: "seed", label: "Seed", integer: true, help: "The same seed gives the same answer; empty means random." },
];

export const MORE_PARAMETERS = [
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, initial: 0, slider: [-2, 2, 0.05], help: "Subtracted from the logits of tokens that were generated before." },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, initial: 0, slider: [-2, 2, 0.05], help: "Subtracted for each time that a token was generated before." },
  { name: "repetition_penalty", label: "Repetition penalty", above: 0, initial: 1, slider: [0.5, 2, 0.05], help: "Divides the logits of tokens that were generated before." },
  { name: "min_tokens", label: "Min tokens", min: 0, integer: true, help: "Tokens before which the model cannot end its answer." },
  { name: "priority", label: "Priority", integer: true, help: "Lower values are scheduled first." },
  { name: "timeout", label: "Time limit", unit: "s", above: 0, help: "Seconds from the request to the end of the answer." },
  { name: "first_token_timeout", label: "First token limit", unit: "s", above: 0, help: "Seconds from the request to the first token." },
  { name: "inter_token_timeout", label: "Token limit", unit: "s", above: 0, help: "Seconds between two tokens." },
];

export const ALTERNATIVES = { name: "top_logprobs", label: "Alternatives", min: 0, max: 20, integer: true, initial: 5, slider: [0, 20, 1], help: "The likeliest tokens to list for each token." };

/** The field of a parameter: a number, and a slider for those with a useful range. */
export class NumberField {
  #parameter;
  #default; // What an empty field stands for, if that is a number.
  #input;
  #slider = null;
  #error;

  constructor(parameter) {
    const { name, label, slider, help, unit } = parameter;
    this.#parameter = parameter;
    this.#default = parameter.initial;
    this.#input = create("input", {
      id: name, type: "number", step: "any", placeholder: "default",
      inputMode: parameter.min >= 0 && parameter.integer ? "numeric" : "text",
      attributes: { "aria-describedby": `${name}-error ${name}-range`, ...limits(parameter) },
      on: { input: () => this.#changed() },
    });
    this.#error = create("p", { className: "error", id: `${name}-error`, hidden: true });
    const range = create("small", { id: `${name}-range`, textContent: describeRange(parameter) });
    const title = create("label", { htmlFor: name, title: help }, unit ? `${label} (${unit})` : label, range);
    this.element = create("div", { className: "number" }, title, this.#input);
    if (slider) this.element.append((this.#slider = this.#createSlider()));
    this.element.append(this.#error);
    this.#changed();
  }

  get input() {
    return this.#input;
  }

  /** Returns the number, or null if the field is empty; throws an Error if it is invalid. */
  read() {
    const problem = this.#problem();
    if (problem) throw new Error(problem);
    return this.#input.value === "" ? null : this.#input.valueAsNumber;
  }

  /** Shows the value that an empty field stands for; undefined if that is not known. */
  showDefault(value) {
    this.#default = value ?? this.#parameter.initial;
    this.#input.placeholder = value === undefined ? "default" : String(value);
    this.#changed();
  }

  reset() {
    this.#input.value = "";
    this.#changed();
  }

  #createSlider() {
    const { label, slider: [min, max, step] } = this.#parameter;
    return create("input", {
      type: "range", min, max, step,
      attributes: { "aria-label": `${label}, slider` },
      on: {
        input: () => {
          this.#input.value = this.#slider.value;
          this.#changed();
        },
      },
    });
  }

  #changed() {
    const value = this.#input.valueAsNumber;
    this.element.toggleAttribute("data-unset", Number.isNaN(value));
    if (this.#slider) this.#slider.value = Number.isNaN(value) ? this.#default : value;
    showFieldError(this.#input, this.#error, this.#problem());
  }

  #problem() {
    const { label, integer } = this.#parameter;
    const value = this.#input.valueAsNumber;
    if (this.#input.validity.badInput) return `${label} must be a number.`;
    if (Number.isNaN(value)) return null;
    if (integer && !Number.isSafeInteger(value)) return `${label} must be a whole number, got ${value}.`;
    return isInRange(this.#parameter, value) ? null : `${label} must be ${describeRange(this.#parameter)}, got ${value}.`;
  }
}

function isInRange({ min = -Infinity, max = Infinity, above = -Infinity }, value) {
  return value >= min && value <= max && value > above;
}

/** Returns a range in words, such as "0 to 1"; empty if there is none. */
function describeRange({ min, max, above }) {
  if (above !== undefined) return `more than ${above}`;
  if (max !== undefined) return `${min} to ${max}`.replaceAll("-", "−");
  return min === undefined ? "" : `at least ${min}`;
}

function limits({ min, max, above, integer }) {
  const attributes = { min, max, "data-above": above, "data-integer": integer };
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));
}
