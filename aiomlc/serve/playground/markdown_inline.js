/** Markdown within a line: emphasis, code and links, as nodes of the page. */

import { create } from "./dom.js";

const TOKENS = /\\([!-/:-@[-`{-~])|(`+)|(!?\[)|(\])|(\*+|_+|~~)|<(https?:\/\/[^\s<>]+)>|(https?:\/\/[^\s<>[\]`]+)/g;
const TARGET = /\((?:<([^<>\n]*)>|([^\s()<]*(?:\([^\s()]*\)[^\s()]*)*))(?:\s+"[^"\n]*")?\)/y;
const SPACE = /^\s?$/; // Also the edge of the text.
const PUNCTUATION = /^[\p{P}\p{S}]$/u;
const TAGS = { "*1": "em", "*2": "strong", _1: "em", _2: "strong", "~2": "del" };
const MOST_OPEN = 16; // Marks of a kind, or brackets, that wait for their other half: a bound on depth and time.

/** Returns the nodes of a text with Markdown's marks. */
export function inlineNodes(text) {
  return emphasize(new Scanner(text).scan());
}

/** Splits a text into items: nodes, and the marks of emphasis. */
class Scanner {
  #text;
  #items = [];
  #brackets = []; // The positions in the items of the brackets that may begin a link.
  #ticks;

  constructor(text) {
    this.#text = text;
    this.#ticks = [...text.matchAll(/`+/g)].map((match) => [match.index, match[0].length]).reverse();
  }

  scan() {
    let end = 0;
    TOKENS.lastIndex = 0;
    for (let match; (match = TOKENS.exec(this.#text)); ) {
      this.#addText(this.#text.slice(end, match.index));
      const next = this.#add(match);
      // Links begin another search of the same expression.
      end = TOKENS.lastIndex = next;
    }
    this.#addText(this.#text.slice(end));
    return this.#items;
  }

  /** Adds a token, and returns where the text goes on. */
  #add(match) {
    const [whole, escaped, ticks, opening, closing, mark, wrapped, bare] = match;
    const end = match.index + whole.length;
    if (escaped) this.#addText(escaped);
    else if (ticks) return this.#addCode(match.index, ticks);
    else if (opening) this.#open(opening);
    else if (closing) return this.#close(end);
    else if (mark) this.#addMark(match.index, mark);
    else if (wrapped) this.#addNode(createLink(wrapped, [wrapped]));
    else return this.#addAddress(match.index, bare);
    return end;
  }

  #addText(text) {
    if (text) this.#items.push({ node: text });
  }

  #addNode(node) {
    this.#items.push({ node });
  }

  #addCode(start, ticks) {
    const begin = start + ticks.length;
    while (this.#ticks.at(-1)?.[0] < begin) this.#ticks.pop();
    const closing = this.#ticks.findLast(([, length]) => length === ticks.length)?.[0];
    if (closing === undefined) {
      // None of this length follows, nor will for the next one.
      this.#addText(ticks);
      return begin;
    }
    const code = this.#text.slice(begin, closing).replaceAll("\n", " ");
    const isPadded = /^ .*[^ ].* $/.test(code) || /^ [^ ] $/.test(code);
    this.#addNode(create("code", { textContent: isPadded ? code.slice(1, -1) : code }));
    return closing + ticks.length;
  }

  #open(bracket) {
    if (this.#brackets.length < MOST_OPEN) this.#brackets.push(this.#items.length);
    this.#addText(bracket);
  }

  #close(end) {
    const position = this.#brackets.pop();
    TARGET.lastIndex = end;
    const target = position === undefined ? null : TARGET.exec(this.#text);
    const address = target && httpAddress(target[1] ?? target[2]);
    if (!address) {
      this.#addText("]");
      return end;
    }
    const content = emphasize(this.#items.splice(position).slice(1));
    this.#addNode(createLink(address, content.length > 0 ? content : [address]));
    this.#brackets = []; // A link has no links in it.
    return TARGET.lastIndex;
  }

  #addMark(start, mark) {
    const before = this.#text.slice(Math.max(0, start - 1), start);
    const after = this.#text.slice(start + mark.length, start + mark.length + 1);
    if (mark.length > 3) return this.#addText(mark);
    const opens = !SPACE.test(after) && (!PUNCTUATION.test(after) || isEdge(before));
    const closes = !SPACE.test(before) && (!PUNCTUATION.test(before) || isEdge(after));
    const isWord = mark[0] === "_" && opens && closes; // An underscore within a word is a letter.
    this.#items.push({
      mark: mark[0],
      length: mark.length,
      opens: opens && (!isWord || PUNCTUATION.test(before)),
      closes: closes && (!isWord || PUNCTUATION.test(after)),
    });
  }

  #addAddress(start, found) {
    let address = found.replace(/[.,;:!?'"*_~]+$/, "");
    while (address.endsWith(")") && count(address, ")") > count(address, "(")) address = address.slice(0, -1);
    if (this.#brackets.length > 0 || !httpAddress(address)) this.#addText(address);
    else this.#addNode(createLink(address, [address]));
    return start + address.length;
  }
}

const isEdge = (character) => SPACE.test(character) || PUNCTUATION.test(character);

const count = (text, character) => text.split(character).length - 1;

/** Returns an address if it is a whole one of the web, else null: no script, no file, no data. */
function httpAddress(text) {
  const url = URL.canParse(text) ? new URL(text) : null;
  return /^https?:$/.test(url?.protocol) ? text : null;
}

function createLink(address, content) {
  return create("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow", title: address }, content);
}

/** Returns the nodes of items: each closing mark takes the latest opening one that fits. */
function emphasize(items) {
  const done = [];
  const openers = []; // Positions in `done`, in order.
  for (const item of items) {
    while (item.closes && item.length > 0) {
      const at = openers.findLastIndex((position) => isPair(done[position], item));
      if (at < 0) break;
      const opener = done[openers[at]];
      const size = Math.min(2, opener.length, item.length);
      const content = done.splice(openers[at] + 1).map(toNode);
      opener.length -= size;
      item.length -= size;
      if (opener.length === 0) done.pop();
      openers.length = opener.length === 0 ? at : at + 1;
      done.push({ node: create(TAGS[item.mark + size], {}, content) });
    }
    if (item.node === undefined && item.length === 0) continue;
    if (item.opens && openers.length < MOST_OPEN) openers.push(done.length);
    done.push(item);
  }
  return done.map(toNode);
}

/** Whether two marks are a pair, by CommonMark's rule of three for those that could be either half. */
function isPair(opener, closer) {
  if (opener.mark !== closer.mark) return false;
  const canBeEither = opener.closes || closer.opens;
  const isOfThree = (opener.length + closer.length) % 3 === 0 && opener.length % 3 !== 0;
  return !(canBeEither && isOfThree);
}

const toNode = (item) => item.node ?? item.mark.repeat(item.length);
