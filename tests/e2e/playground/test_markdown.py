"""Markdown of answers: what it becomes, and that it becomes nothing else."""

from __future__ import annotations

import random

import pytest
from playwright.sync_api import Page

from tests.e2e.playground.open_page import answers, ask, event_stream, reply

# Each text, and the HTML of what it becomes; attributes but `href` and `start` are left out.
CASES = {
    "# One\n## Two #\n###### Six": "<h4>One</h4><h5>Two</h5><h6>Six</h6>",
    "#hashtag": "<p>#hashtag</p>",
    "**bold** *it* __b__ _i_ ***both*** ~~no~~": "<p><strong>bold</strong> <em>it</em> "
    "<strong>b</strong> <em>i</em> <em><strong>both</strong></em> <del>no</del></p>",
    "*a **b** c* and **open": "<p><em>a <strong>b</strong> c</em> and **open</p>",
    "2 * 3 * 4, snake_case_name, \\*no\\*": "<p>2 * 3 * 4, snake_case_name, *no*</p>",
    "`a*b*` ``c`d`` `open": "<p><code>a*b*</code> <code>c`d</code> `open</p>",
    "one\ntwo\n\nthree": "<p>one\ntwo</p><p>three</p>",
    "- a\n- b\n  1. c\n  2. d\n\n     more": "<ul><li><p>a</p></li><li><p>b</p><ol start='1'><li>"
    "<p>c</p></li><li><p>d</p><p>more</p></li></ol></li></ul>",
    "3. x\n   ```py\n   y = 1\n\n     z\n   ```\n4. w": "<ol start='3'><li><p>x</p><pre>y = 1\n\n"
    "  z</pre></li><li><p>w</p></li></ol>",
    "It was\n1986. Good.": "<p>It was\n1986. Good.</p>",
    "> a\n> - b\n\n---": "<blockquote><p>a</p><ul><li><p>b</p></li></ul></blockquote><hr>",
    "| a | b |\n|---|--:|\n| `1\\|2` | *c* | d |": "<table><thead><tr><th>a</th><th>b</th><th></th>"
    "</tr></thead><tbody><tr><td><code>1|2</code></td><td><em>c</em></td><td>d</td></tr></tbody>"
    "</table>",
    "a | b\nno table": "<p>a | b\nno table</p>",
    "```\nopen <b>": "<pre>open <b></pre>",
    "[x](https://a.b/c_(d) 't') [y](http://e.f)": "<p>[x](<a href='https://a.b/c_(d)'>"
    "https://a.b/c_(d)</a> 't') <a href='http://e.f'>y</a></p>",
    "see https://a.b/c_d_e). <https://g.h>": "<p>see <a href='https://a.b/c_d_e'>"
    "https://a.b/c_d_e</a>). <a href='https://g.h'>https://g.h</a></p>",
    "[a](javascript:alert(1)) [b](data:text/html,x) [c](//d.e) ![f](file:///g) <img src=x>": "<p>"
    "[a](javascript:alert(1)) [b](data:text/html,x) [c](//d.e) ![f](file:///g) <img src=x></p>",
}
# The nodes as text, with the attributes that matter: `<` of texts is not escaped.
SHOW = """
async (texts) => {
  const module = new URL("playground/markdown.js", document.baseURI);
  const { blockNode, parseBlocks } = await import(module);
  const code = ({ text }) => Object.assign(document.createElement("pre"), { textContent: text });
  const show = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    const inner = [...node.childNodes].map(show).join("");
    const name = node.localName;
    if (name === "div") return inner;
    const attributes = ["href", "start"].filter((each) => node.hasAttribute(each));
    const list = attributes.map((each) => ` ${each}='${node.getAttribute(each)}'`).join("");
    return ["hr"].includes(name) ? `<${name}>` : `<${name}${list}>${inner}</${name}>`;
  };
  const html = (text) => parseBlocks(text).map((block) => show(blockNode(block, code))).join("");
  return texts.map(html);
}
"""
# Returns the names of elements, and the schemes of links, that the texts become; and their letters.
INSPECT = """
async (texts) => {
  const module = new URL("playground/markdown.js", document.baseURI);
  const { blockNode, parseBlocks } = await import(module);
  const code = ({ text }) => Object.assign(document.createElement("pre"), { textContent: text });
  const names = new Set(), schemes = new Set(), letters = [];
  for (const text of texts) {
    const whole = document.createElement("div");
    whole.append(...parseBlocks(text).map((block) => blockNode(block, code)));
    for (const element of whole.querySelectorAll("*")) {
      names.add(element.localName);
      if (element.localName !== "a") continue;
      schemes.add(new URL(element.href).protocol);
      if (element.relList.value !== "noopener noreferrer nofollow") names.add("a without rel");
    }
    letters.push(whole.textContent.replace(/[^a-z]/g, ""));
  }
  return [[...names], [...schemes], letters];
}
"""
ELEMENTS = {
    *("p", "h4", "h5", "h6", "hr", "ul", "ol", "li", "blockquote", "pre", "div"),
    *("table", "thead", "tbody", "tr", "th", "td", "a", "code", "em", "strong", "del"),
}
MARKS = [*"*_`#>|~-+\\ \n", "**", "- ", "1. ", "\n\n", "```\n", "|-|-|\n", "  ", "a", "bc", "d "]
LINKS = [*"[]()<>", "](", "https://x.y", "javascript:z", "<img src=x onerror=q>", "![", "data:,"]


def random_texts(pieces: list[str], number: int) -> list[str]:
    rng = random.Random(len(pieces))
    return ["".join(rng.choices(pieces, k=rng.randint(1, 40))) for _ in range(number)]


def test_markdown_becomes_elements_and_nothing_else(page: Page) -> None:
    shown = page.evaluate(SHOW, list(CASES))
    assert dict(zip(CASES, shown, strict=True)) == CASES

    plain = random_texts(MARKS, 1000)
    names, schemes, letters = page.evaluate(INSPECT, [*plain, *random_texts(MARKS + LINKS, 2000)])
    assert set(names) <= ELEMENTS
    assert set(schemes) <= {"http:", "https:"}
    # No letter is lost or moved, however the marks are arranged.
    assert letters[: len(plain)] == ["".join(filter(str.islower, text)) for text in plain]


@pytest.mark.parametrize("size", [1, 7])
def test_an_answer_is_markdown_and_a_question_is_as_it_was_typed(page: Page, size: int) -> None:
    text = "# Title\n\n- *one*\n- two\n\n```py\nx = 1\n```\n\n| a |\n|---|\n| 1 |"
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    reply(page, event_stream([{"content": part} for part in parts]))

    ask(page, "**Hello**")

    body = answers(page).locator(".body .text")
    assert body.get_by_role("heading", name="Title").count() == 1
    assert body.get_by_role("listitem").all_inner_texts() == ["one", "two"]
    assert body.get_by_role("region", name="Code").inner_text() == "x = 1"
    assert body.get_by_role("cell").all_inner_texts() == ["1"]
    assert (
        page.get_by_role("article", name="You").locator(".body .text").inner_text() == "**Hello**"
    )
