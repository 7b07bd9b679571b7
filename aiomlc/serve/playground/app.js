/** The playground: connects the parts of the page. */

import { Api } from "./api.js";
import { Chat, focusPrompt } from "./chat.js";
import { button, byId, create, setText } from "./dom.js";
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
const chat = new Chat(api, readSettings, showState);

initComposer();
initKey();
loadModels();
new ServerView(api).run();

/** Returns the settings of the next request; shows the problem if one is invalid. */
function readSettings() {
  showNotice("");
  try {
    const model = byId("model").value;
    const fields = { ...(model && { model }), ...settings.read() };
    return { fields, systemPrompt: settings.systemPrompt };
  } catch (error) {
    if (!(error instanceof InvalidSetting)) throw error;
    showNotice(error.message);
    reveal(error.input);
    return null;
  }
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
  setText(byId("notice"), text);
  byId("notice").hidden = !text;
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
    if (event.key === "Escape" && chat.isRunning) stop();
  });
  byId("new-chat").addEventListener("click", () => {
    chat.clear();
    showNotice("");
    panel.showChat();
    prompt.focus();
  });
  byId("scroller").addEventListener("scroll", () => chat.noteScroll());
  byId("suggestions").append(...SUGGESTIONS.map((text) => button(text, () => submit(text))));
  showState();
}

function submit(text) {
  if (!text.trim()) return;
  panel.showChat();
  if (!chat.send(text)) return;
  byId("prompt").value = "";
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
    const ids = await api.models();
    select.replaceChildren(...ids.map((id) => create("option", { value: id, textContent: id })));
    select.disabled = false;
    showNotice("");
  } catch (error) {
    select.replaceChildren(create("option", { value: "", textContent: "Not available" }));
    select.disabled = true;
    if (error.status === 401) byId("key-details").open = true;
    showNotice(error.message);
  }
}
