"""What a grammar allows of which others are parts, asked of llguidance itself."""

from __future__ import annotations

import pytest

from aiomlc.runtime.grammar.composition import embed_grammar, reasoning_then
from aiomlc.runtime.grammar.grammar import Grammar, json_grammar, tagged_grammar
from tests.unit.grammar_oracle import SPECIAL, allows

OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
TAGGED = tagged_grammar([("<f>", OBJECT, "</f>")], ["<f"], lambda _: None)
INNER = embed_grammar(["start: /x/ @y"], "y", Grammar("regex", "y"))
ANSWERS = [
    (json_grammar(OBJECT), '{"a": 1}', '{"a": "b"}'),
    (json_grammar({"type": "array", "items": OBJECT}), '[{"a": 1}, {"a": 2}]', "{}"),
    (Grammar("regex", r"[a-c]+/\d\/\n"), "abc/1/\n", "abc/x/\n"),
    (Grammar("regex", "a\nb\\\nc\\\\/"), "a\nb\nc\\/", "a"),
    (Grammar("regex", ""), "", "a"),
    (Grammar("lark", 'start: word\nword: "a" | "b" word\n'), "bba", "bbb"),
    (Grammar("lark", 'start: "a" "b"\n%ignore /[ ]+/'), "a  b", "b a"),
    (TAGGED, 'x <f>{"a": 1}</f> y', "x <f>{}</f> y"),
    (INNER, "xy", "yx"),
]


@pytest.mark.parametrize(("answer", "right", "wrong"), ANSWERS)
def test_an_answer_behind_thoughts_is_what_its_grammar_says(
    answer: Grammar, right: str, wrong: str
) -> None:
    grammar = reasoning_then(answer, "</think>", lambda _: None)

    assert allows(answer, right)
    assert not allows(answer, wrong)
    for thought in ("", "\n", 'Let </thin me.\n{"a": "b"}', "é</"):
        assert allows(grammar, f"{thought}</think>{right}")
        assert not allows(grammar, f"{thought}</think>{wrong}")
        assert not allows(grammar, thought)

    if right:
        assert not allows(grammar, right)


@pytest.mark.parametrize(("answer", "right", "wrong"), ANSWERS)
def test_a_mark_that_is_a_token_ends_thoughts_and_so_does_the_same_text(
    answer: Grammar, right: str, wrong: str
) -> None:
    grammar = reasoning_then(answer, "</think>", lambda _: SPECIAL)

    for mark in (bytes([SPECIAL]), b"</think>"):
        assert allows(grammar, b"Hm.\n" + mark + right.encode())
        assert allows(grammar, mark + right.encode())
        assert not allows(grammar, b"Hm.\n" + mark + wrong.encode())


def test_the_first_mark_ends_the_thoughts() -> None:
    grammar = reasoning_then(Grammar("regex", "[ab]"), "</think>", lambda _: None)

    assert not allows(grammar, "a</think>b</think>a")
