"""Construction of the grammar that constrains a completion to valid tool calls."""

from __future__ import annotations

__all__ = ("tool_grammar",)

import re
from collections.abc import Callable, Sequence
from typing import final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.grammar.composition import embed_grammar
from aiomlc.runtime.grammar.grammar import Grammar, lark_literal
from aiomlc.runtime.output_formats.tool_format import ToolFormat
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema


def tool_grammar(
    tools: Sequence[ToolSchema],
    tool_format: ToolFormat,
    special_token_id: Callable[[str], int | None],
    *,
    must_call: bool,
    allow_parallel: bool,
    alternative: Grammar | None = None,
) -> Grammar:
    """Return the grammar of completions that call these tools in the model's tool-call format.

    Unless `must_call` is set, text may replace the calls or, if they have a start marker, precede
    them.

    Args:
        tools: The functions that may be called.
        tool_format: The tool-call format of the model.
        special_token_id: Returns the id of a special token by its text, or None. A marker that
            is a special token is matched as that token.
        must_call: Whether the completion consists of calls only, at least one.
        allow_parallel: Whether there may be more than one call.
        alternative: A grammar that the completion may follow instead, or None.

    Raises:
        BadRequestError: If the tool-call format or a schema cannot be expressed as a grammar.
    """
    literals = _LiteralWriter(tool_format.markers, special_token_id)
    markers = (tool_format.start_marker, tool_format.end_marker)
    start, end = (
        literals.write("" if tool_format.marker_optional else marker) for marker in markers
    )
    rules = tool_format.syntax.grammar_rules(tools, literals.write, allow_parallel=allow_parallel)
    rules.append(f"marked: body {end}")
    rules.append(f"call: {start} marked")
    separator = tool_format.separator if allow_parallel else None
    rules.append('more: ""' if separator is None else f"more: ({literals.write(separator)} call)*")
    if alternative is not None:
        return _with_alternative(rules, start, alternative)

    if must_call:
        rules.append("start: call more")
    elif tool_format.marker_optional:
        rules += _text_rules_without_marker(tool_format, special_token_id)
        rules.append("start: call | TEXT")
    else:
        rules += _text_rules(start)
        rules.append("start: head marked more | TEXT")

    return Grammar("lark", "\n".join(reversed(rules)))


@final
class _LiteralWriter:
    """Converter of fixed text to Lark expressions, in which special tokens are matched by id."""

    def __init__(
        self, markers: Sequence[str], special_token_id: Callable[[str], int | None]
    ) -> None:
        self._markers = re.compile("(" + "|".join(map(re.escape, markers)) + ")")
        self._special_token_id = special_token_id

    def write(self, text: str) -> str:
        segments = (segment for segment in self._markers.split(text) if segment)
        return " ".join(
            lark_literal(segment, self._special_token_id(segment)) for segment in segments
        )


def _text_rules(start: str) -> list[str]:
    """Return the rules of text before a call.

    The text ends at the start marker; if the marker is not a special token, at its first
    occurrence.
    """
    is_special = start.startswith("<[")
    head = f"head: TEXT {start}" if is_special else f"head[lazy]: TEXT {start}"
    return [r"TEXT: /(.|\n)*/", head]


def _text_rules_without_marker(
    tool_format: ToolFormat, special_token_id: Callable[[str], int | None]
) -> list[str]:
    """Return the rule of text that the tool parser does not take for a call.

    Such text neither starts like a call nor contains the start marker.
    """
    space = r"\s\x1c-\x1f"  # The whitespace of Python's `str.lstrip`.
    first = re.escape(tool_format.syntax.call_prefix[0])
    text = rf"TEXT: /[{space}]*([^{first}{space}](.|\n)*)?/"
    if special_token_id(tool_format.start_marker) is None:
        text += rf" & ~/(.|\n)*{re.escape(tool_format.start_marker)}(.|\n)*/"

    return [text]


def _with_alternative(rules: Sequence[str], start: str, alternative: Grammar) -> Grammar:
    """Return the grammar of either calls or the alternative, decided by the start marker."""
    if not start:
        raise BadRequestError(
            "the model's tool-call format has no start marker to distinguish calls from text",
            param="response_format",
        )

    # A marker that is not a special token is taken for a call even if the alternative allows it.
    is_special = start.startswith("<[")
    calls_start = f"calls_start: {start}" if is_special else f"calls_start[lazy]: {start}"
    return embed_grammar(
        ["start: calls_start marked more | @alternative", calls_start, *reversed(rules)],
        "alternative",
        alternative,
    )
