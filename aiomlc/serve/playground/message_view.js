/** The view of one message, with its buttons. */

import { picture } from "./attachments.js";
import { button, create, setText } from "./dom.js";
import { figures, formatSeconds } from "./messages.js";
import { copyButton, renderText } from "./text_view.js";
import { TokenView } from "./token_view.js";
import { indented, isJson, ToolCallsView } from "./tool_calls_view.js";

const NAMES = { user: "You", assistant: "Model", tool: "Tool result" };

/**
 * Shows a message.
 *
 * `actions` has the functions `edit(message, {content, toolCalls})`, which is false if it has no effect,
 * `regenerate(message)`, `sendResults(message, results)`, and for a full context `canForget()`,
 * `forgetOldest(message)` and `restart()`.
 */
export class MessageView {
  #message;
  #actions;
  #parts;
  #tokens = null;
  #calls = null;
  #showTokens = true; // If there are any.

  constructor(message, actions) {
    this.#message = message;
    this.#actions = actions;
    this.#parts = createParts(this);
    const { title, reasoning, body, problem, remedies, bar } = this.#parts;
    this.element = create(
      "article",
      { className: "message", data: { role: message.role }, attributes: { "aria-label": this.#title() } },
      title, reasoning, body, problem, remedies, bar,
    );
    this.update(true);
  }

  get message() {
    return this.#message;
  }

  /** Shows the present state of the message; `isLast` says whether no message follows it. */
  update(isLast) {
    const message = this.#message;
    this.element.dataset.state = message.state;
    this.element.setAttribute("aria-busy", String(message.state === "streaming"));
    this.element.toggleAttribute("data-forgotten", message.isForgotten);
    setText(this.#parts.title, this.#title());
    this.#updateReasoning();
    this.#updateBody(isLast);
    this.#updateBar(isLast);
    setText(this.#parts.problem, message.error ?? "");
    this.#parts.problem.hidden = !message.error;
    this.#parts.remedies.hidden = !(message.isTooLong && isLast);
    this.#parts.forget.hidden = !this.#actions.canForget();
  }

  #title() {
    const { role, toolName, isForgotten } = this.#message;
    const name = toolName ? `Result of ${toolName}` : NAMES[role];
    return isForgotten ? `${name}, forgotten by the model` : name;
  }

  /** Replaces the text by boxes to edit it and the arguments of its calls. */
  edit() {
    const { body, bar } = this.#parts;
    const { role, content, toolCalls } = this.#message;
    const isAnswer = role === "assistant";
    const box = create("textarea", { value: content, attributes: { "aria-label": "Edited message" } });
    const boxes = toolCalls.map((call) =>
      create("textarea", { className: "code", value: indented(call.arguments), attributes: { "aria-label": `Arguments of ${call.name}` } }),
    );
    const close = () => {
      editor.replaceWith(body);
      bar.hidden = false;
      this.#parts.edit.focus();
    };
    const save = () => {
      const wrong = boxes.filter((each) => !isJson(each.value));
      for (const each of boxes) each.setAttribute("aria-invalid", String(wrong.includes(each)));
      if (wrong.length > 0) return wrong[0].focus();
      const calls = toolCalls.map((call, index) => ({ ...call, arguments: boxes[index].value }));
      if (this.#actions.edit(this.#message, { content: box.value, toolCalls: calls })) close();
    };
    const keys = (event) => {
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !isAnswer) save();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
    const editor = create(
      "div",
      { className: "editor", on: { keydown: keys } },
      box,
      boxes,
      create(
        "div",
        {},
        button(isAnswer ? "Save" : "Save and send", save, { className: "primary" }),
        button("Cancel", close),
      ),
    );
    body.replaceWith(editor);
    bar.hidden = true;
    box.focus();
  }

  /** Goes to the first box for the result of a tool call, if there is one. */
  focusResult() {
    this.#calls?.focus();
  }

  forgetOldest() {
    this.#actions.forgetOldest(this.#message);
  }

  restart() {
    this.#actions.restart();
  }

  regenerate() {
    this.#actions.regenerate(this.#message);
  }

  toggleTokens() {
    this.#showTokens = !this.#showTokens;
    this.#updateBody(false);
    this.#parts.tokens.setAttribute("aria-pressed", String(this.#showTokens));
  }

  #updateReasoning() {
    const { reasoning: text, content, toolCalls, state } = this.#message;
    const { reasoning, reasoningTitle, reasoningText } = this.#parts;
    reasoning.hidden = !text;
    if (!text) return;

    const isOver = state !== "streaming" || content || toolCalls.length > 0;
    setText(reasoningTitle, isOver ? this.#reasoningTime() : "Reasoning…");
    renderText(reasoningText, text, { isMarkdown: true });
  }

  #reasoningTime() {
    const { reasoningSeconds } = this.#message;
    return reasoningSeconds ? `Reasoned for ${formatSeconds(reasoningSeconds)}` : "Reasoning";
  }

  #updateBody(isLast) {
    const { role, content, tokens, toolCalls, state } = this.#message;
    const { body, text } = this.#parts;
    const withTokens = tokens.length > 0 && this.#showTokens;
    if (tokens.length > 0) {
      this.#tokens ??= addTo(body, new TokenView());
      this.#tokens.update(tokens);
      this.#tokens.element.hidden = !withTokens;
    }
    text.hidden = withTokens;
    if (!withTokens) renderText(text, content, { isMarkdown: role === "assistant" });
    // An empty paragraph carries the cursor until the first text arrives.
    if (state === "streaming" && !text.lastElementChild) text.append(create("p"));
    if (toolCalls.length > 0) {
      this.#calls ??= addTo(body, new ToolCallsView((results) => this.#actions.sendResults(this.#message, results)));
      this.#calls.update(toolCalls, isLast && state === "done");
    }
  }

  #updateBar(isLast) {
    const { role, content, tokens, toolCalls } = this.#message;
    const { edit, copy, regenerate, tokens: toggle, figures: line } = this.#parts;
    const isAnswer = role === "assistant";
    edit.hidden = isAnswer && !content && toolCalls.length === 0;
    copy.hidden = !navigator.clipboard || !content;
    regenerate.hidden = !isAnswer || !isLast;
    toggle.hidden = tokens.length === 0;
    setText(line, isAnswer ? statusLine(this.#message) : "");
  }
}

function addTo(parent, view) {
  parent.append(view.element);
  return view;
}

function statusLine(message) {
  const limit = message.isTooLong ? "Cut off, as the context is full" : "Cut off at the limit of tokens";
  const ends = { length: limit, error: "Ended by an error" };
  const end = message.state === "stopped" ? "Stopped" : ends[message.finishReason];
  return [end, figures(message)].filter(Boolean).join(" · ");
}

function createParts(view) {
  const reasoningTitle = create("summary");
  const reasoningText = create("div", { className: "text" });
  const images = create("div", { className: "images" }, view.message.images.map(picture));
  images.hidden = view.message.images.length === 0;
  const text = create("div", { className: "text" });
  const edit = button("Edit", () => view.edit(), { className: "quiet" });
  const copy = copyButton(() => view.message.content);
  const regenerate = button("Regenerate", () => view.regenerate(), { className: "quiet" });
  const tokens = button("Tokens", () => view.toggleTokens(), {
    className: "quiet",
    attributes: { "aria-pressed": "true" },
  });
  const forget = button("Forget the oldest question, and answer again", () => view.forgetOldest());
  const restart = button("New chat", () => view.restart());
  const line = create("span", { className: "figures" });
  return {
    title: create("h3"),
    reasoningTitle,
    reasoningText,
    reasoning: create("details", { className: "reasoning" }, reasoningTitle, reasoningText),
    text,
    body: create("div", { className: "body" }, images, text),
    problem: create("p", { className: "problem" }),
    forget,
    remedies: create("div", { className: "remedies" }, forget, restart),
    edit,
    copy,
    regenerate,
    tokens,
    figures: line,
    bar: create("div", { className: "actions" }, edit, copy, regenerate, tokens, line),
  };
}
