/** Conversations that outlive the page: in the browser's storage, and as JSON files. */

import { newMessage, toRequest } from "./messages.js";

const PREFIX = "aiomlc-chat-";
const OPEN = "aiomlc-open-chat"; // Of this tab: what a reload opens again.
const ROLES = ["user", "assistant", "tool"];

/** Returns a conversation without messages. */
export function newConversation() {
  return { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), updated: 0, systemPrompt: "", messages: [] };
}

/** Returns what a list calls a conversation: the beginning of its first question. */
export function titleOf({ messages }) {
  const question = messages.find((message) => message.role === "user");
  const first = question?.content.trim() ?? "";
  const other = question?.images.length > 0 ? "An image" : "No question";
  return first.length > 60 ? `${first.slice(0, 60)}…` : first || other;
}

/** The conversations of this browser; each has its own key, so that tabs do not disturb each other. */
export class ChatStore {
  /** Returns the conversations, the latest first. */
  list() {
    const ids = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
    const conversations = ids.map((key) => this.read(key.slice(PREFIX.length))).filter(Boolean);
    return conversations.sort((first, second) => second.updated - first.updated);
  }

  /** Returns a conversation; null if there is none with this id, or another program has spoiled it. */
  read(id) {
    try {
      const { systemPrompt, updated, messages } = JSON.parse(localStorage.getItem(PREFIX + id));
      return { id, systemPrompt, updated, messages: messages.map((each) => ({ ...newMessage(each.role), ...each })) };
    } catch {
      return null;
    }
  }

  /** Keeps a conversation, without log-probabilities, which are large; false if there is no room. */
  write({ id, ...conversation }) {
    const messages = conversation.messages.map((message) => {
      const state = message.state === "streaming" ? "stopped" : message.state;
      return { ...message, tokens: [], state };
    });
    try {
      localStorage.setItem(PREFIX + id, JSON.stringify({ ...conversation, messages }));
      return true;
    } catch {
      return false;
    }
  }

  remove(id) {
    localStorage.removeItem(PREFIX + id);
  }

  /** The conversation that this tab showed before it was loaded again, or null. */
  get open() {
    return this.read(sessionStorage.getItem(OPEN));
  }

  set open({ id }) {
    sessionStorage.setItem(OPEN, id);
  }
}

/** Returns the JSON text of a conversation, `{"messages": [...]}`, which `aiomlc chat` loads, too. */
export function exportOne({ messages, systemPrompt }) {
  return JSON.stringify({ messages: toRequest(messages, systemPrompt) }, null, 2);
}

/** Returns the JSON text of several conversations. */
export function exportAll(conversations) {
  return JSON.stringify({ conversations: conversations.map((each) => JSON.parse(exportOne(each))) }, null, 2);
}

/** Returns the conversations in the JSON text of one or of several; throws an Error that says what is wrong. */
export function importChats(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON.");
  }
  const several = value?.conversations ?? [value];
  const isValid = Array.isArray(several) && several.length > 0 && several.every((each) => Array.isArray(each?.messages));
  if (!isValid) throw new Error('This file has no conversation: expected {"messages": […]} or {"conversations": […]}.');
  return several.map(({ messages }) => fromRequest(messages));
}

/** Returns the conversation of messages as the API takes them. */
function fromRequest(messages) {
  const conversation = { ...newConversation(), updated: Date.now() };
  const names = new Map(); // Of tool calls, by id.
  for (const [index, message] of messages.entries()) {
    const content = textOf(message?.content);
    if (content === null) throw new Error(`Message ${index + 1} has content that is not text or an image.`);
    if (index === 0 && ["system", "developer"].includes(message.role)) {
      conversation.systemPrompt = content;
      continue;
    }
    if (!ROLES.includes(message?.role)) throw new Error(`Message ${index + 1} has the role ${JSON.stringify(message?.role)}; expected ${ROLES.join(", ")}.`);
    const toolCalls = (message.tool_calls ?? []).map((call) => ({
      id: String(call.id), name: String(call.function?.name), arguments: String(call.function?.arguments),
    }));
    for (const call of toolCalls) names.set(call.id, call.name);
    const tool = { toolCallId: message.tool_call_id, toolName: names.get(message.tool_call_id) };
    const fields = message.role === "tool" ? tool : { reasoning: textOf(message.reasoning_content) ?? "", toolCalls };
    conversation.messages.push(newMessage(message.role, content, { ...fields, images: imagesOf(message.content) }));
  }
  return conversation;
}

/** Returns the text of a message's content, which may have parts; null if some are not text. */
function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content === null || content === undefined ? "" : null;
  const texts = content.filter((part) => !isImage(part)).map((part) => part?.text);
  return texts.every((text) => typeof text === "string") ? texts.join("\n") : null;
}

/** Returns the images of a message's content as URLs. */
function imagesOf(content) {
  return Array.isArray(content) ? content.filter(isImage).map((part) => part.image_url.url) : [];
}

/** Only images in the file itself: the page asks no other server for one. */
function isImage(part) {
  return part?.type === "image_url" && String(part.image_url?.url).startsWith("data:image/");
}
