"""The grammar of calling tools, in the form that a model was taught."""

from __future__ import annotations

__all__ = ("tool_grammar",)

import re
from collections.abc import Callable, Sequence
from typing import final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.grammar.composition import embed_grammar
from aiomlc.runtime.grammar.grammar import Grammar, lark_text
from aiomlc.runtime.output_formats.tool_format import ToolFormat
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema


def tool_grammar(
    tools: Sequence[ToolSchema],
    tool_format: ToolFormat,
    special_id: Callable[[str], int | None],
    *,
    must_call: bool,
    may_repeat: bool,
    otherwise: Grammar | None = None,
) -> Grammar:
    """Calls of these tools; where none must be called, any text before them, or only text.

    Args:
        special_id: The id of a special token by its text; such a mark is matched as a whole.
        must_call: The answer is calls alone, at least one.
        may_repeat: There may be more calls than one.
        otherwise: What the answer is where it is not calls alone; None: it is calls.

    Raises:
        BadRequestError: calls in the model's form cannot be enforced.
    """
    writer = _Writer(tool_format.marks, special_id)
    is_bare = tool_format.marker_optional
    markers = (tool_format.start_marker, tool_format.end_marker)
    begin, end = (writer.write("" if is_bare else marker) for marker in markers)
    rules = tool_format.syntax.rules(tools, writer.write, may_repeat=may_repeat)
    rules.append(f"marked: body {end}")
    rules.append(f"call: {begin} marked")
    joint = tool_format.separator if may_repeat else None
    rules.append('more: ""' if joint is None else f"more: ({writer.write(joint)} call)*")
    if otherwise is not None:
        return _with_otherwise(rules, begin, otherwise)

    if must_call:
        rules.append("start: call more")
    elif is_bare:
        rules += _rules_of_bare_text(tool_format, special_id)
        rules.append("start: call | TEXT")
    else:
        rules += _rules_of_text(begin)
        rules.append("start: head marked more | TEXT")

    return Grammar("lark", "\n".join(reversed(rules)))


@final
class _Writer:
    """Writes fixed text as parts of a rule, and the marks in it as tokens where they are such."""

    def __init__(self, marks: Sequence[str], special_id: Callable[[str], int | None]) -> None:
        self._marks = re.compile("(" + "|".join(map(re.escape, marks)) + ")")
        self._special_id = special_id

    def write(self, text: str) -> str:
        parts = (part for part in self._marks.split(text) if part)
        return " ".join(lark_text(part, self._special_id(part)) for part in parts)


def _rules_of_text(begin: str) -> list[str]:
    """Text up to the mark that begins a call; where that is text too, its first occurrence."""
    is_special = begin.startswith("<[")
    head = f"head: TEXT {begin}" if is_special else f"head[lazy]: TEXT {begin}"
    return [r"TEXT: /(.|\n)*/", head]


def _rules_of_bare_text(
    tool_format: ToolFormat, special_id: Callable[[str], int | None]
) -> list[str]:
    """Text that is read as no call: it neither begins as one nor has the mark of one."""
    space = r"\s\x1c-\x1f"  # As Python counts it.
    first = re.escape(tool_format.syntax.opens[0])
    text = rf"TEXT: /[{space}]*([^{first}{space}](.|\n)*)?/"
    if special_id(tool_format.start_marker) is None:
        text += rf" & ~/(.|\n)*{re.escape(tool_format.start_marker)}(.|\n)*/"

    return [text]


def _with_otherwise(rules: Sequence[str], begin: str, otherwise: Grammar) -> Grammar:
    """Calls, or another answer, between which the mark of calls decides."""
    if not begin:
        raise BadRequestError(
            "an answer is not told from calls, which have no mark", param="response_format"
        )

    # A mark that is text is taken as soon as it is there, even where the answer could have it.
    opened = f"opened: {begin}" if begin.startswith("<[") else f"opened[lazy]: {begin}"
    return embed_grammar(
        ["start: opened marked more | @otherwise", opened, *reversed(rules)],
        "otherwise",
        otherwise,
    )
