/** The fields that hold JSON: tools and a schema. */

import { byId, showFieldError } from "./dom.js";

export const TOOLS_EXAMPLE = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "Get the weather in a city.",
      parameters: {
        type: "object",
        properties: { city: { type: "string", description: "The name of the city" } },
        required: ["city"],
      },
    },
  },
];

export const SCHEMA_EXAMPLE = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
};

/** A text box for JSON, which says what is wrong when it is left or read. */
export class JsonField {
  #box;
  #error;
  #check;

  /** `check(value)` returns what is wrong with a value that is valid JSON, or null. */
  constructor(id, check, { example, onChange }) {
    this.#box = byId(id);
    this.#error = byId(`${id}-error`);
    this.#check = check;
    this.#box.addEventListener("change", () => this.#validate());
    this.#box.addEventListener("input", () => {
      // While typing, a problem is only taken away.
      if (!this.#error.hidden) this.#validate();
      onChange();
    });
    byId(`${id}-example`).addEventListener("click", () => {
      this.#box.value = JSON.stringify(example, null, 2);
      this.#box.setSelectionRange(0, 0);
      this.#validate();
      onChange();
      this.#box.focus();
    });
  }

  get input() {
    return this.#box;
  }

  get isEmpty() {
    return this.#box.value.trim() === "";
  }

  /** Returns the value, or null if the box is empty; throws an Error that says what is wrong. */
  read() {
    const { value, problem } = this.#parse();
    this.#show(problem);
    if (problem) throw new Error(problem);
    return value;
  }

  #validate() {
    this.#show(this.#parse().problem);
  }

  #show(problem) {
    showFieldError(this.#box, this.#error, problem);
  }

  #parse() {
    if (this.isEmpty) return { value: null, problem: null };
    try {
      const value = JSON.parse(this.#box.value);
      return { value, problem: this.#check(value) };
    } catch (error) {
      return { value: null, problem: describeSyntaxError(error.message, this.#box.value) };
    }
  }
}

/** Returns what is wrong with text that is not JSON; engines word it differently. */
function describeSyntaxError(message, text) {
  const place = /line (\d+),? column (\d+)/.exec(message);
  const where = place ? ` in line ${place[1]}, column ${place[2]}` : "";
  const position = Number(/position (\d+)/.exec(message)?.[1]);
  if (position >= text.trimEnd().length || /\bend of|EOF/i.test(message)) {
    return "Not valid JSON: it ends too early. Is a bracket or a quote missing?";
  }
  const reason = message.replace(/^JSON\.parse: /, "").replace(/ (in JSON )?at (position|line).*$/, "");
  return `Not valid JSON${where}: ${reason}.`;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

export function checkTools(tools) {
  if (!Array.isArray(tools)) return "The tools must be an array: [ … ].";
  for (const [index, tool] of tools.entries()) {
    const problem = checkTool(tool);
    if (problem) return `Tool ${index + 1}: ${problem}`;
  }
  return null;
}

function checkTool(tool) {
  if (!isObject(tool)) return "must be an object.";
  if (tool.type !== "function") return 'must have "type": "function".';
  if (!isObject(tool.function)) return 'must have an object "function".';
  const { name, parameters } = tool.function;
  if (typeof name !== "string" || !name) return 'its function must have a "name".';
  if (parameters !== undefined && !isObject(parameters)) return '"parameters" must be a JSON schema, an object.';
  return null;
}

export function checkSchema(schema) {
  return isObject(schema) ? null : "A schema must be an object: { … }.";
}
