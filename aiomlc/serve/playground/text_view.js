/** Rendering of text: Markdown, or paragraphs and fenced code blocks. */

import { button, create, setText } from "./dom.js";
import { blockNode, parseBlocks, splitFences } from "./markdown.js";

const sources = new WeakMap(); // What each block on the page was made from.

/**
 * Shows text in a container, and touches only what has changed since the last call.
 *
 * Models write Markdown; what people and tools write is shown as it is, but for code blocks.
 */
export function renderText(container, text, { isMarkdown = false } = {}) {
  const blocks = isMarkdown ? parseBlocks(text) : splitFences(text);
  blocks.forEach((block, index) => {
    const current = container.children[index];
    if (current && sources.get(current) === block.source) return;
    if (block.kind === "code" && current?.classList.contains("code-block")) updateCode(current, block);
    else if (current) current.replaceWith(createBlock(block));
    else container.append(createBlock(block));
    sources.set(container.children[index], block.source);
  });
  while (container.children.length > blocks.length) container.lastElementChild.remove();
}

function createBlock(block) {
  return block.kind === "plain" ? create("p", { textContent: block.source }) : blockNode(block, createCode);
}

function createCode(block) {
  const code = create("code", { textContent: block.text });
  return create(
    "div",
    { className: "code-block" },
    create("div", {}, create("span", { textContent: block.language || "code" }), copyButton(() => code.textContent)),
    create("pre", { tabIndex: 0, attributes: { "aria-label": "Code", role: "region" } }, code),
  );
}

function updateCode(element, block) {
  setText(element.querySelector("span"), block.language || "code");
  setText(element.querySelector("code"), block.text);
}

/** Returns a button that copies text; it is hidden where the browser has no clipboard. */
export function copyButton(getText) {
  const copy = button(
    "Copy",
    async () => {
      await navigator.clipboard.writeText(getText());
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = "Copy"), 1500);
    },
    { className: "quiet", hidden: !navigator.clipboard },
  );
  return copy;
}
