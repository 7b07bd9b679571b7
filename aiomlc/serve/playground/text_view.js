/** Rendering of a model's text: paragraphs and fenced code blocks. */

import { button, create, setText } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})([^`\n]*)$/;

/** Splits text into `{kind: "text" | "code", text, language}`; the last fence may be open. */
export function splitFences(text) {
  const segments = [];
  let lines = [];
  let fence = null; // The characters that close the code block.
  let language = "";
  const end = (kind) => {
    const joined = lines.join("\n");
    if (kind === "code" || joined.trim()) {
      segments.push({ kind, language, text: kind === "code" ? joined : joined.trim() });
    }
    lines = [];
  };
  for (const line of text.split("\n")) {
    const match = FENCE.exec(line);
    if (fence === null && match) {
      end("text");
      [, fence] = match;
      language = match[2].trim();
    } else if (fence !== null && match?.[1].startsWith(fence) && !match[2].trim()) {
      end("code");
      fence = null;
    } else {
      lines.push(line);
    }
  }
  end(fence === null ? "text" : "code");
  return segments;
}

/** Shows text in a container, and touches only what has changed since the last call. */
export function renderText(container, text) {
  const segments = splitFences(text);
  segments.forEach((segment, index) => {
    const current = container.children[index];
    if (current?.dataset.kind === segment.kind) return updateSegment(current, segment);
    const created = createSegment(segment);
    if (current) current.replaceWith(created);
    else container.append(created);
  });
  while (container.children.length > segments.length) container.lastElementChild.remove();
}

function createSegment(segment) {
  const data = { kind: segment.kind };
  if (segment.kind === "text") return create("p", { data, textContent: segment.text });

  const code = create("code", { textContent: segment.text });
  return create(
    "div",
    { className: "code-block", data },
    create("div", {}, create("span", { textContent: segment.language || "code" }), copyButton(() => code.textContent)),
    create("pre", { tabIndex: 0, attributes: { "aria-label": "Code", role: "region" } }, code),
  );
}

function updateSegment(element, segment) {
  if (segment.kind === "text") return setText(element, segment.text);
  setText(element.querySelector("span"), segment.language || "code");
  setText(element.querySelector("code"), segment.text);
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
