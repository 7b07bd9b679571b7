"""The grammar of calling tools, in the form that a model was taught."""

from __future__ import annotations

__all__ = ("ToolSchema", "tool_grammar")

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiomlc.errors import BadRequestError
from aiomlc.runtime.grammar import Grammar, lark_json, lark_text
from aiomlc.runtime.tool_format import ToolFormat


class _Layout(NamedTuple):
    """How the JSON of calls is written between the marks."""

    before: str
    between: str  #: Empty: every call has marks of its own.
    after: str
    arguments_key: str


_LAYOUTS = {
    "hermes": _Layout("\n", "", "\n", "arguments"),
    "mistral": _Layout(" [", ", ", "]", "arguments"),
    "llama3": _Layout("", "; ", "", "parameters"),
}


class ToolSchema(NamedTuple):
    """A function, and the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]


def tool_grammar(
    tools: Sequence[ToolSchema],
    tool_format: ToolFormat,
    special_id: Callable[[str], int | None],
    *,
    must_call: bool,
    may_repeat: bool,
) -> Grammar:
    """Calls of these tools; where none must be called, any text before them, or only text.

    Args:
        special_id: The id of a special token by its text; such a mark is matched as a whole.
        must_call: The answer is calls alone, at least one.
        may_repeat: There may be more calls than one.

    Raises:
        BadRequestError: calls in the model's form cannot be enforced.
    """
    layout = _LAYOUTS.get(tool_format.name)
    if layout is None:
        raise BadRequestError(
            f"calls of tools in the form {tool_format.name!r} cannot be enforced", param="tools"
        )

    rules = [
        rule for number, tool in enumerate(tools) for rule in _tool_rules(number, tool, layout)
    ]
    rules.append("object: " + " | ".join(f"object_{number}" for number in range(len(tools))))
    begin = lark_text(tool_format.begin, special_id(tool_format.begin))
    end = lark_text(tool_format.end, special_id(tool_format.end)) if tool_format.end else ""
    rules.append(f"body: {_body(layout, may_repeat=may_repeat)} {end}")
    rules.append(f"call: {'' if tool_format.bare else begin} body")
    repeats = may_repeat and bool(tool_format.end)
    rules.append('more: ("\\n" call)*' if repeats else 'more: ""')
    if must_call:
        rules.append("start: call more")
    elif tool_format.bare:
        rules += [r"TEXT: /([^{](.|\n)*)?/", "start: call | TEXT"]
    else:
        rules += _rules_of_text(begin)
        rules.append("start: head body more | TEXT")

    return Grammar("lark", "\n".join(reversed(rules)))


def _tool_rules(number: int, tool: ToolSchema, layout: _Layout) -> list[str]:
    # The name is text of its own, so that references within the parameters stay what they are.
    head = f'{{"name": {json.dumps(tool.name)}, "{layout.arguments_key}": '
    return [
        f"arguments_{number}: {lark_json(tool.parameters)}",
        f'object_{number}: {lark_text(head)} arguments_{number} "}}"',
    ]


def _body(layout: _Layout, *, may_repeat: bool) -> str:
    """What stands between the marks."""
    more = f"({lark_text(layout.between)} object)*" if may_repeat and layout.between else ""
    return f"{lark_text(layout.before)} object {more} {lark_text(layout.after)}"


def _rules_of_text(begin: str) -> list[str]:
    """Text up to the mark that begins a call; where that is text too, its first occurrence."""
    is_special = begin.startswith("<[")
    head = f"head: TEXT {begin}" if is_special else f"head[lazy]: TEXT {begin}"
    return [r"TEXT: /(.|\n)*/", head]
