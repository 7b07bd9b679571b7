"""Composition of grammars. Each part keeps its own rule names and grammar language."""

from __future__ import annotations

__all__ = ("embed_grammar", "prepend_reasoning")

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from aiomlc.runtime.grammar.grammar import Grammar, lark_literal

_SLASH = re.compile(r"\\(.)|([/\n])", re.DOTALL)


def prepend_reasoning(
    answer: Grammar, end_marker: str, special_token_id: Callable[[str], int | None]
) -> Grammar:
    """Return the grammar of reasoning, up to the first end marker, and the answer after it.

    Args:
        end_marker: The marker that ends the reasoning. If it is a special token, the same text
            written with other tokens also ends the reasoning, since the reasoning parser only
            sees text.
    """
    rules = [
        "start: reasoning @answer",
        "reasoning: marker_as_text",
        f"marker_as_text[lazy]: TEXT {lark_literal(end_marker)}",
        r"TEXT: /(.|\n)*/",
    ]
    token_id = special_token_id(end_marker)
    if token_id is not None:
        rules[1] += f" | TEXT {lark_literal(end_marker, token_id)}"

    return embed_grammar(rules, "answer", answer)


def embed_grammar(rules: Sequence[str], name: str, part: Grammar) -> Grammar:
    """Return the grammar of Lark rules that refer to another grammar as `@name`.

    Args:
        rules: Lark rules, among them `start`.
    """
    grammars = [{"lark_grammar": "\n".join(rules)}, *_named_grammars(name, part)]
    return Grammar("llguidance", json.dumps({"grammars": grammars}))


def _named_grammars(name: str, grammar: Grammar) -> list[dict[str, Any]]:
    """Return llguidance's description of a named grammar and of the grammars that it refers to."""
    match grammar.kind:
        case "json_schema":
            return [{"name": name, "json_schema": json.loads(grammar.source)}]
        case "regex":
            pattern = _SLASH.sub(_escape_slash, grammar.source)
            body = f"/{pattern}/" if pattern else '""'
            return [{"name": name, "lark_grammar": f"start: {body}"}]
        case "lark":
            return [{"name": name, "lark_grammar": grammar.source}]
        case "llguidance":
            first, *others = json.loads(grammar.source)["grammars"]
            return [{**first, "name": name}, *others]


def _escape_slash(match: re.Match[str]) -> str:
    """Escape a slash or a line break, which would end the regular expression in Lark."""
    character = match[1] or match[2]
    if character == "/":
        return r"\/"

    return r"\n" if character == "\n" else match[0]
