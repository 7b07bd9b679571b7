"""Grammars of which others are parts. Each keeps its own names and its own language."""

from __future__ import annotations

__all__ = ("embed_grammar", "reasoning_then")

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from aiomlc.runtime.grammar.grammar import Grammar, lark_text

_SLASH = re.compile(r"\\(.)|([/\n])", re.DOTALL)


def reasoning_then(answer: Grammar, end: str, special_id: Callable[[str], int | None]) -> Grammar:
    """Any text up to the first mark that ends thoughts, and behind it the answer.

    Args:
        end: The mark. Spelt out it ends them even where it is a special token, since what reads
            the thoughts sees text only.
        special_id: The id of a special token by its text.
    """
    rules = [
        "start: thoughts @answer",
        "thoughts: spelt",
        f"spelt[lazy]: TEXT {lark_text(end)}",
        r"TEXT: /(.|\n)*/",
    ]
    token_id = special_id(end)
    if token_id is not None:
        rules[1] += f" | TEXT {lark_text(end, token_id)}"

    return embed_grammar(rules, "answer", answer)


def embed_grammar(rules: Sequence[str], name: str, part: Grammar) -> Grammar:
    """Rules of Lark, `start` among them, in which `@name` is another grammar."""
    grammars = [{"lark_grammar": "\n".join(rules)}, *_parts(name, part)]
    return Grammar("llguidance", json.dumps({"grammars": grammars}))


def _parts(name: str, grammar: Grammar) -> list[dict[str, Any]]:
    """A grammar by a name, and those that it refers to."""
    match grammar.kind:
        case "json_schema":
            return [{"name": name, "json_schema": json.loads(grammar.source)}]
        case "regex":
            pattern = _SLASH.sub(_in_slashes, grammar.source)
            body = f"/{pattern}/" if pattern else '""'
            return [{"name": name, "lark_grammar": f"start: {body}"}]
        case "lark":
            return [{"name": name, "lark_grammar": grammar.source}]
        case "llguidance":
            first, *others = json.loads(grammar.source)["grammars"]
            return [{**first, "name": name}, *others]


def _in_slashes(found: re.Match[str]) -> str:
    """A character of a regular expression that Lark would take for the end of it, escaped."""
    character = found[1] or found[2]
    if character == "/":
        return r"\/"

    return r"\n" if character == "\n" else found[0]
