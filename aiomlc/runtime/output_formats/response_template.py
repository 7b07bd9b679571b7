"""The response template of a tokenizer's configuration, as our formats of calls and thoughts."""

from __future__ import annotations

__all__ = ("AnswerFormats", "find_answer_formats", "read_response_template")

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat, find_reasoning_format
from aiomlc.runtime.output_formats.tool_format import ToolFormat, find_tool_format
from aiomlc.runtime.output_formats.tool_syntax.json_calls import JsonCalls
from aiomlc.runtime.output_formats.tool_syntax.region_content import RegionContent, read_content
from aiomlc.runtime.output_formats.tool_syntax.templated_calls import (
    PLACEHOLDER,
    RegionEnd,
    TemplatedCalls,
)

_THOUGHTS = ("thinking", "reasoning_content", "reasoning")
_END = "eos"  # Of the answer, which we learn from the engine.
_KEYS = {
    *("open", "open_pattern", "close", "close_pattern", "content", "content_args"),
    *("repeats", "optional", "transform", "transform_each"),
}
_OPENAI = {"type": "function", "function": "{content}"}
# The characters that a pattern repeats, chooses or takes as anything end the text it begins with.
_LITERAL = re.compile(r"(?:\\\W|[^\\.^$*+?{}\[\]|()])(?![*?{])")


IsEnd = Callable[[str], bool]


def _is_never(text: str) -> bool:
    del text
    return False


class AnswerFormats(NamedTuple):
    """How an answer shows calls of tools and thoughts; None: not at all, or not as we know."""

    tool_format: ToolFormat | None
    reasoning_format: ReasoningFormat | None


def find_answer_formats(
    chat_template: str | None, response_template: object, is_end: IsEnd = _is_never
) -> AnswerFormats:
    """The formats that a model's chat template teaches, or else those of its response template.

    A form that the chat template shows is read as it comes and can be enforced, so it goes first;
    but not where the response template has patterns for what only looks like a list of JSON.
    """
    declared = read_response_template(response_template, is_end)
    if chat_template is None:
        return declared

    calls, told = find_tool_format(chat_template), declared.tool_format
    if calls is None or (told is not None and _differ(calls, told)):
        calls = told

    return AnswerFormats(calls, find_reasoning_format(chat_template) or declared.reasoning_format)


def _differ(shown: ToolFormat, declared: ToolFormat) -> bool:
    is_other_syntax = isinstance(shown.syntax, JsonCalls) != isinstance(declared.syntax, JsonCalls)
    is_guess = isinstance(shown.syntax, JsonCalls) and is_other_syntax
    return is_guess or not declared.start_marker.startswith(shown.start_marker)


def read_response_template(template: object, is_end: IsEnd = _is_never) -> AnswerFormats:
    """What a template says of calls and thoughts; nothing, where it needs more than we know.

    Args:
        is_end: Whether a text is a token that ends an answer, and is never seen in it.
    """
    fields = template.get("fields") if isinstance(template, Mapping) else None
    if not isinstance(fields, Mapping) or not all(
        isinstance(given, Mapping) for given in fields.values()
    ):
        return AnswerFormats(None, None)

    # An answer that has marks of its own is told apart in another way than ours.
    content = fields.get("content", {})
    if "open" in content or "open_pattern" in content:
        return AnswerFormats(None, None)

    thoughts = next((fields[name] for name in _THOUGHTS if name in fields), None)
    calls = fields.get("tool_calls")
    return AnswerFormats(
        None if calls is None else _tool_format(calls, is_end),
        None if thoughts is None else _reasoning_format(thoughts),
    )


def _reasoning_format(field: Mapping[str, Any]) -> ReasoningFormat | None:
    match _texts(field.get("open")), _texts(field.get("close")):
        case (begin,), (end,):
            return ReasoningFormat(begin, end)
        case _:
            return None


def _tool_format(field: Mapping[str, Any], is_end: IsEnd) -> ToolFormat | None:
    arguments = field.get("content_args") or {}
    has_two_ends = {"close", "close_pattern"} <= field.keys()
    if field.keys() - _KEYS or has_two_ends or not isinstance(arguments, Mapping):
        return None

    content = read_content(field.get("content", "text"), arguments)
    if content is None or not _is_plain(field.get("transform")):
        return None

    closes = tuple(text for text in _texts(field.get("close")) if not is_end(text))
    begin = field.get("open")
    if closes and isinstance(begin, str) and begin and _is_json_of_openai(field):
        syntax = JsonCalls()
        return ToolFormat("response_template", begin, closes[0], syntax, (), separator="")

    return _by_patterns(field, closes, content)


def _is_json_of_openai(field: Mapping[str, Any]) -> bool:
    """Whether the calls are in the form whose arguments are streamed, and that is enforced."""
    is_bare = field.get("transform") in (None, _OPENAI) and not field.get("transform_each")
    return is_bare and field.get("content") == "json" and not field.get("content_args")


def _by_patterns(
    field: Mapping[str, Any], closes: tuple[str, ...], content: RegionContent
) -> ToolFormat | None:
    opening = _opening(field)
    if opening is None or not opening[0]:
        return None

    begin, pattern = opening
    try:
        end = _region_end(field, closes)
    except (re.error, TypeError):
        return None

    close = end.pattern.pattern if end is not None else ""
    syntax = TemplatedCalls(
        begin,
        pattern,
        end,
        content,
        transform=field.get("transform"),
        of_each=bool(field.get("transform_each")),
        marks=(_unescaped(pattern.pattern), _unescaped(close), *content.marks),
    )
    return ToolFormat("response_template", begin, "", syntax, ())


def _opening(field: Mapping[str, Any]) -> tuple[str, re.Pattern[str]] | None:
    """What every call begins with, and the pattern of a whole beginning."""
    texts = _texts(field.get("open"))
    if texts and "open_pattern" not in field:
        ordered = sorted(texts, key=len, reverse=True)
        return _shared_beginning(ordered), re.compile("|".join(map(re.escape, ordered)))

    try:
        pattern = re.compile(field["open_pattern"].removeprefix(r"\s*"), re.DOTALL)
    except (re.error, AttributeError, KeyError, TypeError):
        return None

    return _beginning(pattern.pattern), pattern


def _shared_beginning(texts: Collection[str]) -> str:
    first, last = min(texts), max(texts)
    for length, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:length]

    return first


def _region_end(field: Mapping[str, Any], closes: tuple[str, ...]) -> RegionEnd | None:
    """What closes a region; None: the end of the answer alone."""
    if "close_pattern" in field:
        return RegionEnd(re.compile(field["close_pattern"], re.DOTALL), may_grow=True)

    return RegionEnd.of_texts(closes) if closes else None


def _texts(value: object) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    return tuple(
        dict.fromkeys(text for text in texts if isinstance(text, str) and text not in ("", _END))
    )


def _is_plain(transform: object) -> bool:
    """Whether every placeholder is a whole string."""
    if isinstance(transform, Mapping):
        return all(map(_is_plain, transform.values()))

    if isinstance(transform, list):
        return all(map(_is_plain, transform))

    if not isinstance(transform, str) or PLACEHOLDER.search(transform) is None:
        return True

    return PLACEHOLDER.fullmatch(transform) is not None


def _beginning(pattern: str) -> str:
    """The text that whatever matches begins with; empty where there may be several."""
    if "|" in re.sub(r"\\.|\(.*\)", "", pattern):
        return ""

    parts = []
    at = 0
    while (literal := _LITERAL.match(pattern, at)) is not None:
        parts.append(literal[0].removeprefix("\\"))
        at = literal.end()

    return "".join(parts)


def _unescaped(pattern: str) -> str:
    return re.sub(r"\\(\W)", r"\1", pattern)
