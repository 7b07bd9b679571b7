/** The playground: connects the parts of the page. */

import { Api } from "./api.js";
import { Attachments } from "./attachments.js";
import { Chat, focusPrompt } from "./chat.js";
import { ChatStore, newConversation } from "./chat_store.js";
import { ChatsDialog } from "./chats_dialog.js";
import { button, byId, create, setText } from "./dom.js";
import { restoreFields, saveFields } from "./form_memory.js";
import { formatCount } from "./messages.js";
import { Panel } from "./panel.js";
import { ServerView } from "./server_view.js";
import { InvalidSetting, Settings } from "./settings.js";
import { Tabs } from "./tabs.js";
import { initTheme } from "./theme.js";

const SUGGESTIONS = [
  "Who are you?",
  "Tell me a story about a fox called Rosa.",
  "What is the capital of Italy?",
];
const KEY_STORAGE = "aiomlc-api-key";

initTheme(byId("theme"));
const panel = new Panel(byId("panel-button"));
const tabs = new Tabs(byId("tabs"));
const settings = new Settings(() => tabs.mark(settings.activeTabs));
const api = new Api(() => byId("api-key").value);
const chat = new Chat(api, { readSettings, onStateChange, restart });
const store = new ChatStore();
const attachments = new Attachments(showNotice);
let conversation = newConversation(); // That on the page, as it was kept last.
let models = new Map(); // By id.
let invalid = null; // The field that the notice is about.

initComposer();
initKey();
initMemory();
loadModels();
new ServerView(api).run();

/** Returns the settings of the next request; shows the problem if one is invalid. */
function readSettings() {
  showNotice("");
  try {
    const model = byId("model").value;
    const fields = { ...(model && { model }), ...settings.read() };
    return { fields, systemPrompt: settings.systemPrompt, contextLength: contextLength() };
  } catch (error) {
    if (!(error instanceof InvalidSetting)) throw error;
    showNotice(error.message);
    invalid = error.input;
    reveal(error.input);
    return null;
  }
}

/** The most tokens of the model's context, if they are known. */
function contextLength() {
  return models.get(byId("model").value)?.max_model_len ?? null;
}

/** Removes the notice of a field that has been corrected since. */
function reviewNotice() {
  if (invalid && invalid.getAttribute("aria-invalid") !== "true") showNotice("");
}

/** Opens what hides a field of the panel, and goes to it. */
function reveal(input) {
  panel.open();
  tabs.reveal(input);
  const details = input.closest("details");
  if (details) details.open = true;
  input.focus();
}

function showNotice(text) {
  invalid = null;
  setText(byId("notice"), text);
  byId("notice").hidden = !text;
}

function onStateChange() {
  showState();
  showContext();
  keep();
  // A model that was opened by this request can tell its defaults now.
  if (!chat.isRunning && !chat.isEmpty && !models.get(byId("model").value)?.sampling_defaults) loadModels();
}

function showContext() {
  const used = chat.usedTokens;
  const length = contextLength();
  byId("context").hidden = !used || !length;
  if (!used || !length) return;
  Object.assign(byId("context-meter"), { max: length, high: 0.85 * length, value: used });
  setText(byId("context-text"), `${formatCount(used)} of ${formatCount(length)} tokens`);
}

/** Keeps the conversation in the browser, unless nothing was said. */
function keep() {
  if (chat.isEmpty) return;
  conversation = { ...conversation, updated: Date.now(), systemPrompt: settings.systemPrompt, messages: chat.messages };
  store.open = conversation;
  if (!store.write(conversation)) showNotice("The browser has no room to keep this chat: export or delete others under Chats.");
}

/** Shows a conversation in place of the present one, which is kept. */
function open(other) {
  if (chat.isRunning) keep();
  chat.stop();
  conversation = other;
  store.open = other;
  showNotice("");
  attachments.clear();
  settings.systemPrompt = other.systemPrompt;
  chat.load(other.messages);
  panel.showChat();
  focusPrompt();
}

/** Begins a chat with the same system prompt. */
function restart() {
  open({ ...newConversation(), systemPrompt: settings.systemPrompt });
}

function initMemory() {
  restoreFields();
  const earlier = store.open;
  if (earlier) open(earlier);
  new ChatsDialog(store, {
    open,
    removed: () => {
      if (!chat.isEmpty && !store.read(conversation.id)) restart();
    },
  });
  window.addEventListener("pagehide", () => {
    saveFields();
    if (chat.isRunning) keep();
  });
}

function showState() {
  byId("send").hidden = chat.isRunning;
  byId("stop").hidden = !chat.isRunning;
  byId("welcome").hidden = !chat.isEmpty;
}

function initComposer() {
  const prompt = byId("prompt");
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit(prompt.value);
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit(prompt.value);
  });
  byId("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && chat.isRunning && !byId("chats").open) stop();
  });
  byId("new-chat").addEventListener("click", restart);
  byId("model").addEventListener("change", showModel);
  for (const kind of ["input", "click"]) byId("panel").addEventListener(kind, reviewNotice);
  byId("scroller").addEventListener("scroll", () => chat.noteScroll());
  byId("suggestions").append(...SUGGESTIONS.map((text) => button(text, () => submit(text))));
  showState();
}

async function submit(text) {
  await attachments.settle();
  if (!text.trim() && attachments.isEmpty) return;
  panel.showChat();
  if (!chat.send(text, attachments.urls)) return;
  byId("prompt").value = "";
  attachments.clear();
}

function stop() {
  chat.stop();
  focusPrompt();
}

function initKey() {
  const field = byId("api-key");
  field.value = sessionStorage.getItem(KEY_STORAGE) ?? "";
  byId("key-details").open = field.value !== "";
  byId("key-form").addEventListener("submit", (event) => event.preventDefault());
  field.addEventListener("change", () => {
    sessionStorage.setItem(KEY_STORAGE, field.value);
    loadModels();
  });
}

async function loadModels() {
  const select = byId("model");
  try {
    const chosen = select.value;
    models = new Map((await api.models()).map((model) => [model.id, model]));
    select.replaceChildren(...[...models.keys()].map((id) => create("option", { value: id, textContent: id })));
    if (models.has(chosen)) select.value = chosen;
    select.disabled = false;
    showModel();
    showNotice("");
  } catch (error) {
    select.replaceChildren(create("option", { value: "", textContent: "Not available" }));
    select.disabled = true;
    if (error.status === 401) byId("key-details").open = true;
    showNotice(error.message);
  }
}

/** Shows what the chosen model tells of itself. */
function showModel() {
  settings.showDefaults(models.get(byId("model").value)?.sampling_defaults);
  showContext();
}
