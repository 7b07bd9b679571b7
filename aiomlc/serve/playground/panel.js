/** The panel of settings: beside the chat, or in its place on a narrow page. */

const WIDE = matchMedia("(min-width: 60rem)");

export class Panel {
  #button;

  constructor(button) {
    this.#button = button;
    button.addEventListener("click", () => this.#set(!this.#isOpen));
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || WIDE.matches || !this.#isOpen) return;
      this.#set(false);
      button.focus();
    });
    WIDE.addEventListener("change", () => this.#set(WIDE.matches));
    this.#set(WIDE.matches);
  }

  get #isOpen() {
    return document.body.dataset.panel === "open";
  }

  open() {
    this.#set(true);
  }

  /** Shows the chat, if the panel is in its place. */
  showChat() {
    if (!WIDE.matches) this.#set(false);
  }

  #set(isOpen) {
    document.body.dataset.panel = isOpen ? "open" : "closed";
    this.#button.setAttribute("aria-expanded", String(isOpen));
  }
}
