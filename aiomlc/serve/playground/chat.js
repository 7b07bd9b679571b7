/** The conversation: sends requests, applies their chunks, and keeps the page up to date. */

import { byId, setText } from "./dom.js";
import { MessageView } from "./message_view.js";
import { applyChunk, newMessage, toRequest } from "./messages.js";

const NEAR_END = 48; // Pixels from the end within which the page follows the text.

/**
 * A conversation with a model.
 *
 * `readSettings()` returns `{fields, systemPrompt, contextLength}` of the next request, or null if a setting is
 * invalid, which it has shown; the length is null if it is not known. `onStateChange()` is called after each change
 * but the chunks of an answer, and `restart()` begins a new chat.
 */
export class Chat {
  #api;
  #readSettings;
  #onStateChange;
  #restart;
  #views = [];
  #abort = null; // Of the request that is running.
  #frame = 0;
  #isFollowing = true; // Whether the page stays at the end of the conversation.

  constructor(api, { readSettings, onStateChange, restart }) {
    this.#api = api;
    this.#readSettings = readSettings;
    this.#onStateChange = onStateChange;
    this.#restart = restart;
  }

  get messages() {
    return this.#views.map((view) => view.message);
  }

  /** The tokens of the latest prompt and its answer; null if there is no answer. */
  get usedTokens() {
    const usage = this.messages.findLast((message) => message.usage)?.usage;
    return usage ? usage.prompt_tokens + usage.completion_tokens : null;
  }

  get isEmpty() {
    return this.#views.length === 0;
  }

  get isRunning() {
    return this.#abort !== null;
  }

  /** Appends a message of the user and generates the answer; false if nothing was sent. */
  send(text, images) {
    const settings = this.isRunning ? null : this.#readSettings();
    if (!settings) return false;
    this.#append(newMessage("user", text, { images }));
    this.#generate(settings);
    return true;
  }

  /** Ends the running request; the text so far stays. */
  stop() {
    this.#abort?.abort();
    this.#abort = null;
  }

  /** Shows other messages in place of the present ones. */
  load(messages) {
    this.stop();
    this.#truncate(0);
    for (const message of messages) this.#append(message);
    this.#announce(messages.length > 0 ? "Opened the chat." : "New chat.");
    this.#onStateChange();
  }

  #regenerate(message) {
    const settings = this.#readSettings();
    if (!settings) return;
    this.#truncate(this.#indexOf(message));
    this.#generate(settings);
  }

  /** Changes a message; what follows a question or a result of a tool is generated again. */
  #edit(message, { content, toolCalls }) {
    if (message.role === "assistant") {
      Object.assign(message, { content, toolCalls, tokens: [] });
      this.#replace(message);
      this.#onStateChange();
      return true;
    }
    const isQuestion = message.role === "user";
    const settings = this.#readSettings();
    if (!settings || (isQuestion && !content.trim() && message.images.length === 0)) return false;
    this.stop();
    message.content = content;
    // The results of other calls of the same answer stay.
    const messages = this.messages;
    const next = messages.findIndex((each, index) => index > messages.indexOf(message) && (isQuestion || each.role !== "tool"));
    this.#truncate(next < 0 ? messages.length : next);
    this.#replace(message);
    this.#generate(settings);
    return true;
  }

  /** Whether there is a question before the last one that the model still gets. */
  #canForget() {
    return this.messages.filter((message) => message.role === "user" && !message.isForgotten).length > 1;
  }

  /** Has the model forget the oldest question and what belongs to it, and answers the last one again. */
  #forgetOldest(answer) {
    const messages = this.messages;
    const isStart = ({ role, isForgotten }) => role === "user" && !isForgotten;
    const oldest = messages.findIndex(isStart);
    const next = messages.findIndex((message, index) => index > oldest && isStart(message));
    for (const message of messages.slice(0, next)) message.isForgotten = true;
    this.#regenerate(answer);
  }

  #sendResults(message, results) {
    const settings = this.#readSettings();
    if (!settings) return;
    message.toolCalls.forEach((call, index) => {
      const fields = { toolCallId: call.id, toolName: call.name };
      this.#append(newMessage("tool", results[index], fields));
    });
    this.#generate(settings);
  }

  async #generate({ fields, systemPrompt, contextLength }) {
    const history = this.messages;
    const message = newMessage("assistant", "", { state: "streaming" });
    const request = { ...fields, messages: toRequest(history.filter(isSent), systemPrompt) };
    const abort = new AbortController();
    this.#abort = abort;
    this.#append(message);
    this.#scrollToEnd();
    this.#announce("The model is answering.");
    focusPrompt();
    this.#onStateChange();
    try {
      await this.#receive(message, request, abort.signal);
      message.state = "done";
    } catch (error) {
      message.state = abort.signal.aborted ? "stopped" : "failed";
      if (!abort.signal.aborted) message.error = error.message;
      message.isTooLong = error.code === "context_length_exceeded";
    }
    const used = (message.usage?.prompt_tokens ?? 0) + (message.usage?.completion_tokens ?? 0);
    if (message.finishReason === "length" && contextLength && used >= contextLength) message.isTooLong = true;
    if (this.#abort === abort) this.#abort = null; // It may be that of another request by now.
    this.#finish(message);
  }

  async #receive(message, request, signal) {
    const start = performance.now();
    const options = { stream: true, stream_options: { include_usage: true } };
    for await (const chunk of this.#api.chat({ ...request, ...options }, signal)) {
      const seconds = (performance.now() - start) / 1000;
      applyChunk(message, chunk, seconds);
      this.#updateSoon();
    }
  }

  #finish(message) {
    if (this.#indexOf(message) >= 0) {
      this.#update();
      this.#announce(spoken(message));
      if (!isTouch()) this.#views.at(-1).focusResult();
    }
    this.#onStateChange();
  }

  #indexOf(message) {
    return this.#views.findIndex((view) => view.message === message);
  }

  #append(message) {
    const view = this.#createView(message);
    this.#views.push(view);
    byId("log").append(view.element);
    this.#update();
    this.#scrollToEnd();
  }

  #createView(message) {
    return new MessageView(message, {
      edit: (edited, changes) => this.#edit(edited, changes),
      canForget: () => this.#canForget(),
      forgetOldest: (answer) => this.#forgetOldest(answer),
      restart: this.#restart,
      regenerate: (answer) => this.#regenerate(answer),
      sendResults: (answer, results) => this.#sendResults(answer, results),
    });
  }

  #replace(message) {
    const index = this.#indexOf(message);
    const view = this.#createView(message);
    this.#views[index].element.replaceWith(view.element);
    this.#views[index] = view;
    this.#update();
  }

  #truncate(length) {
    for (const view of this.#views.splice(length)) view.element.remove();
    this.#update();
  }

  /** Updates the page with the next frame: once, however many chunks arrive before it. */
  #updateSoon() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#updateLast();
    });
  }

  #update() {
    const last = this.#views.length - 1;
    this.#views.forEach((view, index) => view.update(index === last));
    this.#followEnd();
  }

  #updateLast() {
    this.#views.at(-1)?.update(true);
    this.#followEnd();
  }

  #followEnd() {
    if (this.#isFollowing) this.#scrollToEnd();
  }

  /** Notes whether the reader is at the end of the conversation. */
  noteScroll() {
    const { scrollHeight, scrollTop, clientHeight } = byId("scroller");
    this.#isFollowing = scrollHeight - scrollTop - clientHeight < NEAR_END;
  }

  #scrollToEnd() {
    const scroller = byId("scroller");
    scroller.scrollTop = scroller.scrollHeight;
  }

  /** Has a screen reader say something; the log itself is silent, or it would stutter. */
  #announce(text) {
    setText(byId("status"), text);
  }
}

const isTouch = () => matchMedia("(hover: none)").matches;

/** Goes to the message box, but not on a touch screen, where the keyboard would cover the answer. */
export function focusPrompt() {
  byId(isTouch() ? "scroller" : "prompt").focus();
}

/** An answer that failed before its first text is not part of the conversation. */
function isSent(message) {
  if (message.isForgotten) return false;
  return message.role !== "assistant" || message.content || message.toolCalls.length > 0;
}

function spoken({ state, error, content, toolCalls }) {
  if (state === "failed") return `The answer failed. ${error}`;
  if (state === "stopped") return "Stopped.";
  const calls = toolCalls.map((call) => `The model calls ${call.name}.`).join(" ");
  return calls || `The model answered: ${content}`;
}
