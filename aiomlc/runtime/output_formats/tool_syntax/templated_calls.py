"""Tool calls as the `response_template` of a tokenizer configuration describes them."""

# A frozen field overrides a property, as mypy allows.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

__all__ = ("PLACEHOLDER", "RegionEnd", "TemplatedCalls")

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.output_formats.tool_syntax.region_content import RegionContent
from aiomlc.runtime.output_formats.tool_syntax.syntax import (
    Call,
    CallContext,
    CompleteCalls,
    HistoryCall,
    NotACall,
    ParseStep,
    ToolSchema,
    ToolSyntax,
    dump_arguments,
)
from aiomlc.runtime.output_formats.tool_syntax.typed_value import parse_value, schema_of, types_of

#: A reference to a value by its name, or to one of its fields: `{content.name}`.
PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")


@dataclass(frozen=True, slots=True)
class RegionEnd:
    """The pattern that ends a region. The end of the completion ends every region."""

    pattern: re.Pattern[str]
    max_length: int | None = None  #: Characters that the pattern can match; None if unknown.
    may_extend: bool = False  #: Whether more text may extend a match at the end of the text.

    @classmethod
    def from_strings(cls, strings: Sequence[str]) -> RegionEnd:
        """Return the end by any of these strings: the first occurrence, the longest match there."""
        ordered = sorted(strings, key=len, reverse=True)
        may_extend = any(
            one != other and one.startswith(other) for one in strings for other in strings
        )
        return cls(re.compile("|".join(map(re.escape, ordered))), len(ordered[0]), may_extend)


@dataclass(frozen=True, slots=True)
class TemplatedCalls(ToolSyntax):
    """A region between patterns whose parsed content a template converts to calls."""

    start_marker: str  #: The literal prefix of `start_pattern`: the tool format's start marker.
    start_pattern: re.Pattern[str]  #: Its named groups are values for the template.
    end: RegionEnd | None  #: None if only the end of the completion ends the region.
    content: RegionContent
    #: JSON with placeholders such as `"{name}"`; None to take the content as it is.
    transform: Any = None
    transform_each: bool = False  #: Whether the content is a list and `transform` is for its items.
    markers: tuple[str, ...] = ()

    def create_parser(self, position: int, context: CallContext) -> _RegionParser:
        return _RegionParser(self, position, context)

    def grammar_rules(
        self, tools: Sequence[ToolSchema], literal: Callable[[str], str], *, allow_parallel: bool
    ) -> list[str]:
        raise BadRequestError(
            "tool_choice: calls cannot be enforced for this model: its response template defines "
            "how calls are parsed, not how they are written",
            param="tool_choice",
        )

    def render(self, calls: Sequence[HistoryCall]) -> list[str]:
        raise BadRequestError(
            "messages: tool calls in the history are not supported for this model: its response "
            "template does not define how calls are written",
            param="messages",
        )


@final
class _RegionParser:
    def __init__(self, syntax: TemplatedCalls, position: int, context: CallContext) -> None:
        self._syntax = syntax
        self._context = context
        self._start: int | None = None
        self._position = position

    def parse(self, text: str) -> ParseStep | None:
        if self._start is None:
            # The position is after the start marker and any whitespace.
            self._start = text.rindex(self._syntax.start_marker, 0, self._position)

        end = self._syntax.end
        match = None if end is None else end.pattern.search(text, self._position)
        if match is not None and not (end and end.may_extend and match.end() == len(text)):
            return self._parse_region(text, match.start(), match.end())

        if match is None and end is not None and end.max_length is not None:
            self._position = max(self._position, len(text) - end.max_length + 1)

        return None

    def finalize(self, text: str) -> ParseStep:
        end = self._syntax.end
        match = None if end is None else end.pattern.search(text, self._position)
        if match is not None:
            return self._parse_region(text, match.start(), match.end())

        return self._parse_region(text, len(text), len(text))

    def _parse_region(self, text: str, content_end: int, region_end: int) -> ParseStep:
        assert self._start is not None, "set by parse"
        match = self._syntax.start_pattern.match(text, self._start, content_end)
        if match is None:  # Only the start marker is not a call; another marker may follow.
            return NotACall(self._start + len(self._syntax.start_marker))

        try:
            calls = tuple(self._calls(match.groupdict(), text[match.end() : content_end]))
        except (KeyError, TypeError, ValueError, RecursionError):
            return NotACall(region_end)

        return CompleteCalls(calls, region_end) if calls else NotACall(region_end)

    def _calls(self, captured: Mapping[str, Any], text: str) -> Iterator[Call]:
        syntax = self._syntax
        parameters = self._context.parameters.get(str(captured.get("name")), {})

        def convert(key: str, value: str) -> tuple[object] | None:
            schema = schema_of(parameters, key)
            is_typed = types_of(schema, parameters) is not None
            return (parse_value(value, schema, parameters),) if is_typed else None

        content = syntax.content.parse(text, convert)
        for item in content if syntax.transform_each else [content]:
            fields = item if syntax.transform_each and isinstance(item, Mapping) else {}
            values = {**captured, **fields, "content": item}
            call = item if syntax.transform is None else _substitute(syntax.transform, values)
            yield from _openai_calls(call)


def _substitute(template: object, values: Mapping[str, Any]) -> object:
    """Return a template with its placeholders replaced by values."""
    if isinstance(template, Mapping):
        return {key: _substitute(value, values) for key, value in template.items()}

    if isinstance(template, list):
        return [_substitute(value, values) for value in template]

    placeholder = PLACEHOLDER.fullmatch(template) if isinstance(template, str) else None
    if placeholder is None:
        return template

    value: Any = values
    for name in placeholder[1].split("."):
        value = value[name]

    return value


def _openai_calls(value: object) -> Iterator[Call]:
    """Yield the calls of an OpenAI tool call, of its function alone, or of a list of either."""
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, Mapping):
            raise TypeError("a tool call must be an object")

        function = item.get("function", item)
        name, arguments = function["name"], function.get("arguments", {})
        if not isinstance(name, str) or not name:
            raise ValueError("a tool call must have a name")

        if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
            arguments = "{}"
        elif not isinstance(arguments, str):
            arguments = dump_arguments(_require_object(arguments))

        yield Call(name, arguments)


def _require_object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("the arguments of a tool call must be an object")

    return value
