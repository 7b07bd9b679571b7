/** The settings of requests: the fields of the panel, and the parts of a request they become. */

import { byId, create } from "./dom.js";
import { checkSchema, checkTools, JsonField, SCHEMA_EXAMPLE, TOOLS_EXAMPLE } from "./json_fields.js";
import { ALTERNATIVES, MORE_PARAMETERS, NumberField, PARAMETERS } from "./parameters.js";

const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/** A setting that no request can have, and the element to correct it in. */
export class InvalidSetting extends Error {
  constructor(message, input) {
    super(message);
    this.input = input;
  }
}

export class Settings {
  #numbers;
  #alternatives = new NumberField(ALTERNATIVES);
  #tools;
  #schema;
  #onChange;

  /** `onChange()` is called when it may have changed which tabs take effect. */
  constructor(onChange) {
    this.#onChange = onChange;
    const fields = PARAMETERS.map((parameter) => [parameter.name, new NumberField(parameter)]);
    const more = MORE_PARAMETERS.map((parameter) => [parameter.name, new NumberField(parameter)]);
    this.#numbers = [...fields, ...more];
    byId("sampling").append(...fields.map(([, field]) => field.element));
    byId("sampling-more").append(...more.map(([, field]) => field.element));
    byId("alternatives-field").append(this.#alternatives.element);
    const options = EFFORTS.map((effort) => create("option", { value: effort, textContent: effort }));
    byId("reasoning-effort").append(create("option", { value: "", textContent: "default" }), ...options);
    this.#tools = new JsonField("tools", checkTools, { example: TOOLS_EXAMPLE, onChange });
    this.#schema = new JsonField("schema", checkSchema, {
      example: SCHEMA_EXAMPLE,
      onChange: () => {
        // Typing a schema means to use it.
        if (!this.#schema.isEmpty) this.#formatOption("json_schema").checked = true;
        onChange();
      },
    });
    byId("system-prompt").addEventListener("input", onChange);
    byId("format").addEventListener("change", onChange);
    byId("logprobs").addEventListener("change", () => this.#showAlternatives());
    byId("reset-sampling").addEventListener("click", () => this.#reset());
    this.#showAlternatives();
  }

  get systemPrompt() {
    return byId("system-prompt").value.trim();
  }

  set systemPrompt(text) {
    byId("system-prompt").value = text;
    this.#onChange();
  }

  /** Shows the values that a model has for the fields that are empty, as far as they are known. */
  showDefaults(defaults) {
    for (const [name, field] of this.#numbers) field.showDefault(defaults?.[name]);
  }

  /** The ids of the tabs whose settings are part of the next request. */
  get activeTabs() {
    const active = { system: this.systemPrompt, tools: !this.#tools.isEmpty, format: this.#format !== "text" };
    return Object.keys(active).filter((name) => active[name]);
  }

  /** Returns the fields of a request; throws InvalidSetting. */
  read() {
    return { ...this.#readSampling(), ...this.#readTools(), ...this.#readFormat() };
  }

  #readSampling() {
    const fields = {};
    for (const [name, field] of this.#numbers) {
      const value = readField(field);
      if (value !== null) fields[name] = value;
    }
    if (byId("logprobs").checked) {
      fields.logprobs = true;
      fields.top_logprobs = readField(this.#alternatives) ?? ALTERNATIVES.initial;
    }
    const stop = byId("stop-strings").value.split("\n").filter(Boolean);
    if (stop.length > 0) fields.stop = stop.map((line) => line.replaceAll("\\n", "\n"));
    if (byId("ignore-eos").checked) fields.ignore_eos = true;
    const effort = byId("reasoning-effort").value;
    if (effort) fields.reasoning_effort = effort;
    return fields;
  }

  #readTools() {
    const tools = readField(this.#tools);
    if (!tools?.length) return {};
    const fields = { tools, tool_choice: byId("tool-choice").value };
    return byId("parallel-calls").checked ? fields : { ...fields, parallel_tool_calls: false };
  }

  #readFormat() {
    if (this.#format === "text") return {};
    if (this.#format === "json_object") return { response_format: { type: "json_object" } };
    const schema = readField(this.#schema);
    if (schema === null) throw new InvalidSetting("Enter a JSON schema, or choose another format.", this.#schema.input);
    return { response_format: { type: "json_schema", json_schema: { name: "answer", schema } } };
  }

  get #format() {
    return document.querySelector('input[name="format"]:checked').value;
  }

  #formatOption(value) {
    return document.querySelector(`input[name="format"][value="${value}"]`);
  }

  #showAlternatives() {
    byId("alternatives-field").hidden = !byId("logprobs").checked;
  }

  #reset() {
    for (const [, field] of this.#numbers) field.reset();
    this.#alternatives.reset();
    for (const id of ["logprobs", "ignore-eos"]) byId(id).checked = false;
    for (const id of ["stop-strings", "reasoning-effort"]) byId(id).value = "";
    this.#showAlternatives();
  }
}

function readField(field) {
  try {
    return field.read();
  } catch (error) {
    throw new InvalidSetting(error.message, field.input);
  }
}
