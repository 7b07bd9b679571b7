"""Tests of composed grammars against llguidance's matcher."""

from __future__ import annotations

import pytest

from aiomlc.runtime.grammar.composition import embed_grammar, prepend_reasoning
from aiomlc.runtime.grammar.grammar import Grammar, json_grammar, structural_tag_grammar
from tests.unit.grammar_oracle import SPECIAL, allows

OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
STRUCTURAL_TAG = structural_tag_grammar([("<f>", OBJECT, "</f>")], ["<f"], lambda _: None)
NESTED = embed_grammar(["start: /x/ @y"], "y", Grammar("regex", "y"))
ANSWERS = [
    (json_grammar(OBJECT), '{"a": 1}', '{"a": "b"}'),
    (json_grammar({"type": "array", "items": OBJECT}), '[{"a": 1}, {"a": 2}]', "{}"),
    (Grammar("regex", r"[a-c]+/\d\/\n"), "abc/1/\n", "abc/x/\n"),
    (Grammar("regex", "a\nb\\\nc\\\\/"), "a\nb\nc\\/", "a"),
    (Grammar("regex", ""), "", "a"),
    (Grammar("lark", 'start: word\nword: "a" | "b" word\n'), "bba", "bbb"),
    (Grammar("lark", 'start: "a" "b"\n%ignore /[ ]+/'), "a  b", "b a"),
    (STRUCTURAL_TAG, 'x <f>{"a": 1}</f> y', "x <f>{}</f> y"),
    (NESTED, "xy", "yx"),
]


@pytest.mark.parametrize(("answer", "valid", "invalid"), ANSWERS)
def test_an_answer_after_reasoning_must_match_its_grammar(
    answer: Grammar, valid: str, invalid: str
) -> None:
    grammar = prepend_reasoning(answer, "</think>", lambda _: None)

    assert allows(answer, valid)
    assert not allows(answer, invalid)
    for reasoning in ("", "\n", 'Let </thin me.\n{"a": "b"}', "é</"):
        assert allows(grammar, f"{reasoning}</think>{valid}")
        assert not allows(grammar, f"{reasoning}</think>{invalid}")
        assert not allows(grammar, reasoning)

    if valid:
        assert not allows(grammar, valid)


@pytest.mark.parametrize(("answer", "valid", "invalid"), ANSWERS)
def test_a_special_token_and_the_same_text_both_end_the_reasoning(
    answer: Grammar, valid: str, invalid: str
) -> None:
    grammar = prepend_reasoning(answer, "</think>", lambda _: SPECIAL)

    for marker in (bytes([SPECIAL]), b"</think>"):
        assert allows(grammar, b"Hm.\n" + marker + valid.encode())
        assert allows(grammar, marker + valid.encode())
        assert not allows(grammar, b"Hm.\n" + marker + invalid.encode())


def test_the_first_end_marker_ends_the_reasoning() -> None:
    grammar = prepend_reasoning(Grammar("regex", "[ab]"), "</think>", lambda _: None)

    assert not allows(grammar, "a</think>b</think>a")
