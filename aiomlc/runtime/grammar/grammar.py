"""Grammars that constrain completions."""

from __future__ import annotations

__all__ = (
    "Grammar",
    "json_grammar",
    "lark_json",
    "lark_literal",
    "structural_tag_grammar",
)

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aiomlc.runtime.grammar.schema_numbers import without_type_limits

# The layout of JSON. With a fixed layout, most tokens outside of values are forced.
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in one of llguidance's grammar languages."""

    kind: Literal["json_schema", "regex", "lark", "llguidance"]
    source: str


def json_grammar(schema: Mapping[str, Any]) -> Grammar:
    """Return the grammar of JSON that matches a schema.

    The JSON is on one line, with the properties in the order of the schema.
    """
    return Grammar("json_schema", json.dumps(_with_layout(schema)))


def lark_json(schema: Mapping[str, Any]) -> str:
    """Return a Lark expression for JSON that matches a schema."""
    return "%json " + json.dumps(_with_layout(schema))


def lark_literal(text: str, token_id: int | None = None) -> str:
    """Return a Lark expression for fixed text, or for a special token if `token_id` is given."""
    if token_id is not None:
        return f"<[{token_id}]>"

    return json.dumps(text, ensure_ascii=False) if text else ""


def structural_tag_grammar(
    structures: Sequence[tuple[str, Mapping[str, Any], str]],
    triggers: Sequence[str],
    special_token_id: Callable[[str], int | None],
) -> Grammar:
    """Return the grammar of text in which each trigger must start one of the structures.

    Args:
        structures: The start tag, the JSON schema of the content and the end tag of each.
        triggers: Prefixes of the start tags. Every start tag must have one of them.
        special_token_id: Returns the id of a special token by its text, or None. A trigger that
            is a special token is matched as that token.
    """
    rules = ["start: (" + " | ".join(f"tag_{i}" for i in range(len(triggers))) + ")* rest"]
    rules += ["rest: TEXT", r"TEXT: /(.|\n)*/"]
    for number, trigger in enumerate(triggers):
        bodies = " | ".join(
            " ".join(
                (lark_literal(start.removeprefix(trigger)), lark_json(schema), lark_literal(end))
            )
            for start, schema, end in structures
            if start.startswith(trigger)
        )
        token_id = special_token_id(trigger)
        if token_id is None:
            rules.append(f"head_{number}[lazy]: TEXT {lark_literal(trigger)}")
            head = f"head_{number}"
        else:
            head = f"TEXT {lark_literal(trigger, token_id)}"

        rules.append(f"tag_{number}: {head} ({bodies})")

    return Grammar("lark", "\n".join(rules))


def _with_layout(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"x-guidance": _LAYOUT, **without_type_limits(schema)}
