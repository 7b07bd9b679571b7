/**
 * Markdown as nodes of the page: headings, lists, quotes, tables, code and what lines contain. Nothing is ever parsed
 * as HTML. A line break is kept as it is, as chats show it.
 */

import { create } from "./dom.js";
import { inlineNodes } from "./markdown_inline.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+(?=\S)|[ \t]*$)/;
const DELIMITER = /^:?-+:?$/;
const DEEPEST = 12; // Levels of quotes and lists; deeper ones stay as they were written.

/**
 * Splits Markdown into blocks `{kind, source, ...}`.
 *
 * `source` are the lines of the block: equal blocks look alike. A code block has `text` and `language`; its fence may
 * still be open.
 */
export function parseBlocks(text, depth = 0) {
  const lines = text.split("\n");
  const blocks = [];
  for (let start = 0; start < lines.length; ) {
    if (!lines[start].trim()) {
      start += 1;
      continue;
    }
    const { end, ...block } = readBlock(lines, start, depth);
    blocks.push({ ...block, source: lines.slice(start, end).join("\n") });
    start = end;
  }
  return blocks;
}

/** Returns the node of a block; that of code is made by `createCode(block)`. */
export function blockNode(block, createCode) {
  const { kind, lines, items, depth } = block;
  const inner = (text) => parseBlocks(text, depth + 1).map((each) => blockNode(each, createCode));
  switch (kind) {
    case "code": return createCode(block);
    case "heading": return create(`h${Math.min(6, block.level + 3)}`, { className: "heading" }, inlineNodes(block.title));
    case "rule": return create("hr");
    case "quote": return create("blockquote", {}, inner(lines.join("\n")));
    case "list": {
      const start = block.start === null ? {} : { start: block.start };
      return create(block.start === null ? "ul" : "ol", start, items.map((item) => create("li", {}, inner(item.join("\n")))));
    }
    case "table": return tableNode(block);
    default: return create("p", {}, inlineNodes(lines.join("\n").trim()));
  }
}

function readBlock(lines, start, depth) {
  const line = lines[start];
  if (FENCE.test(line)) return readCode(lines, start);
  const [, marks, title = ""] = HEADING.exec(line) ?? [];
  if (marks) return { kind: "heading", end: start + 1, level: marks.length, title: title.trim().replace(/(^|[ \t])#+$/, "") };
  if (RULE.test(line)) return { kind: "rule", end: start + 1 };
  if (depth < DEEPEST && QUOTE.test(line)) return readQuote(lines, start, depth);
  if (depth < DEEPEST && ITEM.test(line)) return readList(lines, start, depth);
  if (isTable(lines, start)) return readTable(lines, start);
  return readParagraph(lines, start, depth);
}

/** Splits text into what fences enclose, as blocks of code, and into paragraphs of `kind` "plain". */
export function splitFences(text) {
  const lines = text.split("\n");
  const blocks = [];
  for (let start = 0; start < lines.length; ) {
    let end = start;
    while (end < lines.length && !FENCE.test(lines[end])) end += 1;
    const source = lines.slice(start, end).join("\n").trim();
    if (source) blocks.push({ kind: "plain", source });
    start = end;
    if (start < lines.length) {
      const code = readCode(lines, start);
      blocks.push({ ...code, source: lines.slice(start, code.end).join("\n") });
      start = code.end;
    }
  }
  return blocks;
}

function readCode(lines, start) {
  const [, fence, language] = FENCE.exec(lines[start]);
  let end = start + 1;
  const isClosing = (line) => {
    const [, marks, rest] = FENCE.exec(line) ?? [];
    return marks?.startsWith(fence) && !rest.trim();
  };
  while (end < lines.length && !isClosing(lines[end])) end += 1;
  const indent = indentOf(lines[start]);
  const text = lines.slice(start + 1, end).map((line) => dedent(line, indent)).join("\n");
  return { kind: "code", language: language.trim(), text, end: Math.min(end + 1, lines.length) };
}

function readQuote(lines, start, depth) {
  let end = start;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  return { kind: "quote", end, depth, lines: lines.slice(start, end).map((line) => line.replace(/^ {0,3}> ?/, "")) };
}

/** Reads a list: each item has its own line and those that are indented below it. */
function readList(lines, start, depth) {
  const first = ITEM.exec(lines[start]);
  const kind = first[2].at(-1);
  const items = [];
  let end = start;
  while (end < lines.length) {
    const match = ITEM.exec(lines[end]);
    if (!match || match[2].at(-1) !== kind || (RULE.test(lines[end]) && end > start)) break;
    const [content, next] = readItem(lines, end, match);
    items.push(content);
    end = next;
    // Blank lines between items are part of the list, those after it are not.
    let following = end;
    while (following < lines.length && !lines[following].trim()) following += 1;
    if (following < lines.length && ITEM.exec(lines[following])?.[2].at(-1) === kind) end = following;
  }
  const number = Number.parseInt(first[2], 10);
  return { kind: "list", end, depth, items, start: Number.isNaN(number) ? null : number };
}

function readItem(lines, start, [marker, outer]) {
  const content = [lines[start].slice(marker.length)];
  let width = Math.min(marker.length, outer.length + 4);
  let end = start + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const isBlank = !line.trim();
    // Two spaces more than the marker belong to the item, as models write it below "1.", too.
    const isInside = !isBlank && indentOf(line) >= outer.length + 2;
    const isContinued = !isBlank && lines[end - 1].trim() && !beginsBlock(line);
    if (!isBlank && !isInside && !isContinued) break;
    if (isInside) width = Math.min(width, indentOf(line));
    content.push(dedent(line, width));
  }
  while (content.length > 1 && !content.at(-1).trim()) {
    content.pop();
    end -= 1;
  }
  return [content, end];
}

function readParagraph(lines, start, depth) {
  let end = start + 1;
  while (end < lines.length && lines[end].trim()) {
    if (interrupts(lines[end], depth) || isTable(lines, end)) break;
    end += 1;
  }
  return { kind: "paragraph", end, lines: lines.slice(start, end) };
}

const beginsBlock = (line) => [FENCE, HEADING, RULE, QUOTE, ITEM].some((expression) => expression.test(line));

/** Whether a line ends the paragraph before it; a year at its start, as in "1986.", does not. */
function interrupts(line, depth) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
  if (depth >= DEEPEST) return false;
  const item = ITEM.exec(line);
  return QUOTE.test(line) || Boolean(item && item[0].length < line.length && /^(\D|1[.)])/.test(item[2]));
}

function isTable(lines, start) {
  const [header, delimiter = ""] = [lines[start], lines[start + 1]];
  if (!header.includes("|") || !delimiter.includes("|")) return false;
  const delimiters = cells(delimiter);
  return delimiters.every((cell) => DELIMITER.test(cell)) && cells(header).length === delimiters.length;
}

function readTable(lines, start) {
  let end = start + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const aligns = cells(lines[start + 1]).map((cell) => {
    if (cell.endsWith(":")) return cell.startsWith(":") ? "center" : "right";
    return "left";
  });
  return { kind: "table", end, aligns, header: cells(lines[start]), rows: lines.slice(start + 2, end).map(cells) };
}

/** Splits a row of a table at its bars; one after a backslash is a character of its cell. */
function cells(line) {
  const inside = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return inside.split(/(?<!\\)\|/).map((cell) => cell.replaceAll("\\|", "|").trim());
}

function tableNode({ header, rows, aligns }) {
  const width = Math.max(aligns.length, ...rows.map((texts) => texts.length)); // No text is left out.
  const row = (tag, texts) =>
    create("tr", {}, Array.from({ length: width }, (_, index) =>
      create(tag, { data: { align: aligns[index] ?? "left" } }, inlineNodes(texts[index] ?? ""))));
  const table = create(
    "table", {}, create("thead", {}, row("th", header)), create("tbody", {}, rows.map((texts) => row("td", texts))),
  );
  return create("div", { className: "table", tabIndex: 0, attributes: { "aria-label": "Table", role: "region" } }, table);
}

const indentOf = (line) => line.length - line.trimStart().length;

const dedent = (line, width) => line.slice(Math.min(width, indentOf(line)));
