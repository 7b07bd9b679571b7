"""Translation of a tokenizer's `response_template` to our tool-call and reasoning formats.

The template is transformers' description of how to parse a model's output; see
`transformers.utils.chat_parsing`.
"""

from __future__ import annotations

__all__ = ("OutputFormats", "find_output_formats", "parse_response_template")

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from aiomlc.runtime.output_formats.harmony import ChannelFormat, find_channel_format
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat, find_reasoning_format
from aiomlc.runtime.output_formats.tool_format import ToolFormat, find_tool_format
from aiomlc.runtime.output_formats.tool_syntax.json_calls import JsonCalls
from aiomlc.runtime.output_formats.tool_syntax.region_content import (
    RegionContent,
    parse_content_type,
)
from aiomlc.runtime.output_formats.tool_syntax.templated_calls import (
    PLACEHOLDER,
    RegionEnd,
    TemplatedCalls,
)

_REASONING_FIELDS = ("thinking", "reasoning_content", "reasoning")
_EOS = "eos"  # Names the end of the completion, which the engine reports.
_SUPPORTED_KEYS = {
    *("open", "open_pattern", "close", "close_pattern", "content", "content_args"),
    *("repeats", "optional", "transform", "transform_each"),
}
_OPENAI_CALL = {"type": "function", "function": "{content}"}
# A literal character of a regular expression, not followed by a quantifier that may drop it.
_LITERAL = re.compile(r"(?:\\\W|[^\\.^$*+?{}\[\]|()])(?![*?{])")


IsEnd = Callable[[str], bool]


def _never_ends(text: str) -> bool:
    del text
    return False


class OutputFormats(NamedTuple):
    """The formats of tool calls and of reasoning; None where missing or unknown.

    A model that writes messages in channels has the format of these in place of both.
    """

    tool_format: ToolFormat | None
    reasoning_format: ReasoningFormat | None
    channel_format: ChannelFormat | None = None


def find_output_formats(
    chat_template: str | None,
    response_template: object,
    is_end: IsEnd = _never_ends,
    *,
    find_format: Callable[[str], ToolFormat | None] = find_tool_format,
) -> OutputFormats:
    """Return the formats of the chat template, else those of the response template.

    A known format of the chat template takes precedence, since its arguments can be streamed and
    its calls enforced. The exception is JSON between the same markers, if the response template
    describes another syntax there.

    Args:
        chat_template: The text of the chat template.
        response_template: The `response_template` of the tokenizer configuration.
        is_end: Returns whether a string is a token that ends a completion.
        find_format: Returns the format of the calls in a chat template.
    """
    declared = parse_response_template(response_template, is_end)
    if chat_template is None:
        return declared

    if (channels := find_channel_format(chat_template)) is not None:
        return OutputFormats(None, None, channels)

    tool_format = find_format(chat_template)
    if tool_format is None or (
        declared.tool_format is not None and _contradicts(tool_format, declared.tool_format)
    ):
        tool_format = declared.tool_format

    return OutputFormats(
        tool_format, find_reasoning_format(chat_template) or declared.reasoning_format
    )


def _contradicts(detected: ToolFormat, declared: ToolFormat) -> bool:
    # JSON is what a chat template with no more specific signature is assumed to ask for.
    is_json = isinstance(detected.syntax, JsonCalls)
    is_other_syntax = is_json and not isinstance(declared.syntax, JsonCalls)
    return is_other_syntax or not declared.start_marker.startswith(detected.start_marker)


def parse_response_template(template: object, is_end: IsEnd = _never_ends) -> OutputFormats:
    """Return the supported formats among those that a response template describes.

    Args:
        template: The `response_template` of the tokenizer configuration.
        is_end: Returns whether a string is a token that ends a completion. Such a token never
            occurs in the text.
    """
    fields = template.get("fields") if isinstance(template, Mapping) else None
    if not isinstance(fields, Mapping) or not all(
        isinstance(field, Mapping) for field in fields.values()
    ):
        return OutputFormats(None, None)

    # Our parsers take all text outside of reasoning and calls as content, so they cannot parse
    # content that has its own markers.
    content = fields.get("content", {})
    if "open" in content or "open_pattern" in content:
        return OutputFormats(None, None)

    reasoning = next((fields[name] for name in _REASONING_FIELDS if name in fields), None)
    tool_calls = fields.get("tool_calls")
    return OutputFormats(
        None if tool_calls is None else _tool_format(tool_calls, is_end),
        None if reasoning is None else _reasoning_format(reasoning),
    )


def _reasoning_format(field: Mapping[str, Any]) -> ReasoningFormat | None:
    match _strings(field.get("open")), _strings(field.get("close")):
        case (start_marker,), (end_marker,):
            return ReasoningFormat(start_marker, end_marker)
        case _:
            return None


def _tool_format(field: Mapping[str, Any], is_end: IsEnd) -> ToolFormat | None:
    content_args = field.get("content_args") or {}
    has_two_ends = {"close", "close_pattern"} <= field.keys()
    if field.keys() - _SUPPORTED_KEYS or has_two_ends or not isinstance(content_args, Mapping):
        return None

    content = parse_content_type(field.get("content", "text"), content_args)
    if content is None or not _has_whole_placeholders(field.get("transform")):
        return None

    end_markers = tuple(text for text in _strings(field.get("close")) if not is_end(text))
    start_marker = field.get("open")
    if end_markers and isinstance(start_marker, str) and start_marker and _is_openai_json(field):
        syntax = JsonCalls()
        return ToolFormat(
            "response_template", start_marker, end_markers[0], syntax, (), separator=""
        )

    return _templated_format(field, end_markers, content)


def _is_openai_json(field: Mapping[str, Any]) -> bool:
    """Whether calls are OpenAI's JSON objects, which can be streamed and enforced."""
    is_unchanged = field.get("transform") in (None, _OPENAI_CALL)
    is_json = field.get("content") == "json" and not field.get("content_args")
    return is_json and is_unchanged and not field.get("transform_each")


def _templated_format(
    field: Mapping[str, Any], end_markers: tuple[str, ...], content: RegionContent
) -> ToolFormat | None:
    start = _region_start(field)
    if start is None or not start[0]:
        return None

    start_marker, start_pattern = start
    try:
        end = _region_end(field, end_markers)
    except (re.error, TypeError):
        return None

    end_pattern = end.pattern.pattern if end is not None else ""
    syntax = TemplatedCalls(
        start_marker,
        start_pattern,
        end,
        content,
        transform=field.get("transform"),
        transform_each=bool(field.get("transform_each")),
        markers=(_unescape(start_pattern.pattern), _unescape(end_pattern), *content.markers),
    )
    return ToolFormat("response_template", start_marker, "", syntax, ())


def _region_start(field: Mapping[str, Any]) -> tuple[str, re.Pattern[str]] | None:
    """Return the literal prefix of every region, and the pattern of a region's start."""
    strings = _strings(field.get("open"))
    if strings and "open_pattern" not in field:
        ordered = sorted(strings, key=len, reverse=True)
        return _common_prefix(ordered), re.compile("|".join(map(re.escape, ordered)))

    try:
        pattern = re.compile(field["open_pattern"].removeprefix(r"\s*"), re.DOTALL)
    except (re.error, AttributeError, KeyError, TypeError):
        return None

    return _literal_prefix(pattern.pattern), pattern


def _common_prefix(strings: Collection[str]) -> str:
    first, last = min(strings), max(strings)
    for length, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:length]

    return first


def _region_end(field: Mapping[str, Any], end_markers: tuple[str, ...]) -> RegionEnd | None:
    """Return the end of a region, or None if only the end of the completion ends it."""
    if "close_pattern" in field:
        return RegionEnd(re.compile(field["close_pattern"], re.DOTALL), may_extend=True)

    return RegionEnd.from_strings(end_markers) if end_markers else None


def _strings(value: object) -> tuple[str, ...]:
    """Return the distinct strings of a string or a list, without the end of the completion."""
    values = value if isinstance(value, list) else [value]
    return tuple(
        dict.fromkeys(text for text in values if isinstance(text, str) and text not in ("", _EOS))
    )


def _has_whole_placeholders(transform: object) -> bool:
    """Whether every placeholder of a template is an entire string, not a part of one."""
    if isinstance(transform, Mapping):
        return all(map(_has_whole_placeholders, transform.values()))

    if isinstance(transform, list):
        return all(map(_has_whole_placeholders, transform))

    if not isinstance(transform, str) or PLACEHOLDER.search(transform) is None:
        return True

    return PLACEHOLDER.fullmatch(transform) is not None


def _literal_prefix(pattern: str) -> str:
    """Return the text that every match starts with; empty if there are alternatives."""
    if "|" in re.sub(r"\\.|\(.*\)", "", pattern):
        return ""

    characters = []
    position = 0
    while (literal := _LITERAL.match(pattern, position)) is not None:
        characters.append(literal[0].removeprefix("\\"))
        position = literal.end()

    return "".join(characters)


def _unescape(pattern: str) -> str:
    return re.sub(r"\\(\W)", r"\1", pattern)
