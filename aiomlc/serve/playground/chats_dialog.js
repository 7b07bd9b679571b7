/** The dialog that lists the conversations of this browser. */

import { exportAll, exportOne, importChats, titleOf } from "./chat_store.js";
import { button, byId, create, setText } from "./dom.js";

export class ChatsDialog {
  #store;
  #open;
  #removed;

  /** `open(conversation)` shows one; `removed()` is called after some have been deleted. */
  constructor(store, { open, removed }) {
    this.#store = store;
    this.#open = open;
    this.#removed = removed;
    byId("chats-button").addEventListener("click", () => this.show());
    byId("close-chats").addEventListener("click", () => byId("chats").close());
    byId("export-chats").addEventListener("click", () => download("aiomlc-chats.json", exportAll(store.list())));
    byId("delete-chats").addEventListener("click", () => this.#removeAll());
    byId("import-chats").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", (event) => this.#import(event.target));
  }

  show() {
    this.#showProblem("");
    this.#update();
    byId("chats").showModal();
  }

  #update() {
    const conversations = this.#store.list();
    byId("chat-list").replaceChildren(...conversations.map((conversation) => this.#row(conversation)));
    for (const id of ["export-chats", "delete-chats"]) byId(id).disabled = conversations.length === 0;
  }

  #row(conversation) {
    const title = titleOf(conversation);
    const attributes = (verb) => ({ className: "quiet", attributes: { "aria-label": `${verb} ${title}` } });
    const date = new Date(conversation.updated).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
    return create(
      "li",
      {},
      button(title, () => this.#choose(conversation), { className: "title" }),
      create("small", { textContent: date }),
      button("Export", () => download("aiomlc-chat.json", exportOne(conversation)), attributes("Export")),
      button("Delete", () => this.#remove([conversation]), attributes("Delete")),
    );
  }

  #choose(conversation) {
    byId("chats").close();
    this.#open(conversation);
  }

  #remove(conversations) {
    for (const { id } of conversations) this.#store.remove(id);
    this.#update();
    this.#removed();
  }

  #removeAll() {
    const conversations = this.#store.list();
    if (confirm(`Delete ${conversations.length} conversations of this browser?`)) this.#remove(conversations);
  }

  async #import(input) {
    const [file] = input.files;
    try {
      const conversations = importChats(await file.text());
      const isKept = conversations.every((conversation) => this.#store.write(conversation));
      if (!isKept) throw new Error("The browser has no room for all of it.");
      this.#showProblem("");
      if (conversations.length === 1) this.#choose(conversations[0]);
    } catch (error) {
      this.#showProblem(error.message);
    }
    input.value = ""; // The same file can be chosen again.
    this.#update();
  }

  #showProblem(text) {
    setText(byId("chats-error"), text);
    byId("chats-error").hidden = !text;
  }
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  create("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
