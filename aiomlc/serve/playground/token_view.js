/** An answer as its tokens: shaded by probability, with the alternatives of each. */

import { byId, create } from "./dom.js";

const LEVELS = [0.9, 0.5, 0.2, 0.05]; // A token below the n-th probability has level n or more.
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** The tokens of one answer. The arrow keys move between tokens, Tab moves past all of them. */
export class TokenView {
  #tokens = [];

  constructor() {
    this.element = create("div", {
      className: "tokens",
      attributes: { role: "toolbar", "aria-label": "Tokens of the answer" },
      on: {
        keydown: (event) => this.#move(event),
        focusin: (event) => this.#show(event.target),
        focusout: hideDetails,
        mouseover: (event) => this.#show(event.target),
        mouseout: hideDetails,
      },
    });
  }

  /** Shows the tokens, and creates elements for the new ones only. */
  update(tokens) {
    const added = tokens.slice(this.#tokens.length);
    this.#tokens = [...tokens];
    const first = this.element.childElementCount === 0;
    this.element.append(...added.map(createToken));
    if (first && this.element.firstElementChild) this.element.firstElementChild.tabIndex = 0;
  }

  #move(event) {
    const spans = [...this.element.children];
    const current = spans.indexOf(event.target);
    const ends = { Home: 0, End: spans.length - 1 };
    const target = spans[ends[event.key] ?? current + (STEPS[event.key] ?? NaN)];
    if (event.key === "Escape") hideDetails();
    if (!target) return;

    event.preventDefault();
    event.target.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }

  #show(span) {
    const index = [...this.element.children].indexOf(span);
    if (index >= 0) showDetails(span, this.#tokens[index]);
  }
}

function createToken(token) {
  const probability = Math.exp(token.logprob);
  const level = LEVELS.filter((limit) => probability < limit).length;
  const silent = token.bytes === null ? { silent: "" } : {}; // It adds nothing to the text.
  return create("span", {
    className: "token",
    textContent: token.token,
    tabIndex: -1,
    data: { level, ...silent },
    attributes: { role: "button", "aria-label": describe(token) },
  });
}

/** Returns what a screen reader says of a token. */
function describe(token) {
  const others = alternatives(token).filter((other) => other.token !== token.token);
  const list = others.map((other) => `${quote(other.token)} ${percent(other.logprob)}`).join(", ");
  const own = `${quote(token.token)} ${percent(token.logprob)}`;
  return list ? `${own}; instead of ${list}` : own;
}

/** Returns the likeliest tokens of a position, with the chosen one even if it is not among them. */
function alternatives(token) {
  const top = token.top_logprobs ?? [];
  return top.some((other) => other.token === token.token) ? top : [...top, token];
}

const quote = (text) => JSON.stringify(text);

function percent(logprob) {
  const value = Math.exp(logprob) * 100;
  return value < 0.05 ? "< 0.1 %" : `${value.toFixed(1)} %`;
}

function showDetails(span, token) {
  const details = byId("token-details");
  const table = create("table", {}, ...alternatives(token).map((other) => row(other, token)));
  details.replaceChildren(table);
  details.hidden = false;
  place(details, span.getClientRects()[0] ?? span.getBoundingClientRect());
}

function row(other, token) {
  const bar = create("div", { className: "bar" });
  bar.style.width = `${Math.exp(other.logprob) * 100}%`;
  return create(
    "tr",
    { className: other.token === token.token ? "chosen" : "" },
    create("td", { textContent: quote(other.token) }),
    create("td", { textContent: percent(other.logprob) }),
    create("td", {}, create("div", { className: "track" }, bar)),
  );
}

/** Places the details below a token, or above it where there is no room below. */
function place(details, anchor) {
  const { width, height } = details.getBoundingClientRect();
  const left = Math.min(anchor.left, window.innerWidth - width - 8);
  const below = anchor.bottom + 6;
  const top = below + height > window.innerHeight ? anchor.top - height - 6 : below;
  details.style.left = `${Math.max(8, left)}px`;
  details.style.top = `${Math.max(8, top)}px`;
}

function hideDetails() {
  byId("token-details").hidden = true;
}
