/** Tabs, as the ARIA Authoring Practices describe them. */

const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

export class Tabs {
  #tabs;

  constructor(list) {
    this.#tabs = [...list.querySelectorAll('[role="tab"]')];
    for (const tab of this.#tabs) tab.addEventListener("click", () => this.select(tab));
    list.addEventListener("keydown", (event) => this.#move(event));
    this.select(this.#tabs[0]);
  }

  select(selected) {
    for (const tab of this.#tabs) {
      const isSelected = tab === selected;
      tab.setAttribute("aria-selected", String(isSelected));
      tab.tabIndex = isSelected ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !isSelected;
    }
  }

  /** Selects the tab whose pane contains an element. */
  reveal(element) {
    const pane = element.closest('[role="tabpanel"]');
    const tab = this.#tabs.find((each) => each.getAttribute("aria-controls") === pane?.id);
    if (tab) this.select(tab);
  }

  /** Marks the tabs, by the ends of their ids, whose settings take effect. */
  mark(names) {
    for (const tab of this.#tabs) {
      const isActive = names.includes(tab.id.replace("tab-", ""));
      tab.toggleAttribute("data-active", isActive);
      if (isActive) tab.setAttribute("aria-description", "in use");
      else tab.removeAttribute("aria-description");
    }
  }

  #move(event) {
    const ends = { Home: 0, End: this.#tabs.length - 1 };
    const current = this.#tabs.indexOf(event.target);
    const next = ends[event.key] ?? (current + STEPS[event.key] + this.#tabs.length) % this.#tabs.length;
    if (Number.isNaN(next)) return;
    event.preventDefault();
    this.select(this.#tabs[next]);
    this.#tabs[next].focus();
  }
}
