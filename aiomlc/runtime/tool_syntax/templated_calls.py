"""Calls as a model's own response template describes them, by patterns."""

from __future__ import annotations

__all__ = ("TemplatedCalls",)

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.tool_syntax.syntax import (
    Call,
    CallPlace,
    NoCall,
    PastCall,
    Reading,
    ToolSchema,
    WholeCalls,
    write_arguments,
)
from aiomlc.runtime.tool_syntax.typed_value import read_value, schema_of, types_of

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class TemplatedCalls:
    """A region that a pattern opens and a text closes, turned into calls by a template."""

    begin: str  #: What the pattern begins with; the mark of the format.
    open_pattern: re.Pattern[str]  #: Its groups are values of the template.
    closes: tuple[str, ...]
    transform: Any = None  #: JSON; `"{name}"` in it is a value. None: the content as it is.
    of_each: bool = False  #: The content is a list, and the template is that of an item.
    tag_pattern: re.Pattern[str] | None = None  #: Of an argument's `key` and `value`; None: JSON.
    json_values: bool = False  #: Values of tags are JSON where no schema says what they are.
    marks: tuple[str, ...] = field(default=())

    @property
    def opens(self) -> str:
        """See `ToolSyntax`."""
        return ""

    @property
    def between(self) -> str:
        """See `ToolSyntax`."""
        return ""

    @property
    def repeats(self) -> bool:
        """See `ToolSyntax`."""
        return False

    def open_call(self, at: int, place: CallPlace) -> _RegionReader:
        """See `ToolSyntax`."""
        return _RegionReader(self, at, place)

    def rules(
        self, tools: Sequence[ToolSchema], write: Callable[[str], str], *, may_repeat: bool
    ) -> list[str]:
        """See `ToolSyntax`."""
        raise BadRequestError(
            "tool_choice: this model's calls are known by its response template alone, "
            "which says how they are read and not how they are written",
            param="tool_choice",
        )

    def write(self, calls: Sequence[PastCall]) -> list[str]:
        """See `ToolSyntax`."""
        raise BadRequestError(
            "messages: this model's response template does not say how calls are written",
            param="messages",
        )


@final
class _RegionReader:
    def __init__(self, syntax: TemplatedCalls, at: int, place: CallPlace) -> None:
        self._syntax = syntax
        self._place = place
        self._begin: int | None = None
        self._at = at

    def read(self, text: str) -> Reading | None:
        if self._begin is None:  # Of the mark, behind which whitespace may stand.
            self._begin = text.rindex(self._syntax.begin, 0, self._at)

        found = [(text.find(mark, self._at), len(mark)) for mark in self._syntax.closes]
        close = min(((at, -length) for at, length in found if at >= 0), default=None)
        if close is None:
            longest = max(length for _, length in found)
            self._at = max(self._at, len(text) - longest + 1)
            return None

        return self._read_region(text[self._begin : close[0]], close[0] - close[1])

    def _read_region(self, region: str, end: int) -> Reading:
        opening = self._syntax.open_pattern.match(region)
        if opening is None:
            return NoCall(end)

        try:
            calls = tuple(self._calls(opening.groupdict(), region[opening.end() :]))
        except (KeyError, TypeError, ValueError, RecursionError):
            return NoCall(end)

        return WholeCalls(calls, end) if calls else NoCall(end)

    def _calls(self, captured: Mapping[str, Any], text: str) -> Iterator[Call]:
        syntax = self._syntax
        name = captured.get("name")
        parsed = json.loads(text) if syntax.tag_pattern is None else self._tagged(name, text)
        for item in parsed if syntax.of_each else [parsed]:
            own = item if syntax.of_each and isinstance(item, Mapping) else {}
            values = {**captured, **own, "content": item}
            filled = item if syntax.transform is None else _fill(syntax.transform, values)
            yield from _calls_of(filled)

    def _tagged(self, name: object, text: str) -> dict[str, object]:
        assert self._syntax.tag_pattern is not None, "the caller asks"
        parameters = self._place.parameters.get(str(name), {})
        values: dict[str, object] = {}
        for tag in self._syntax.tag_pattern.finditer(text):
            schema = schema_of(parameters, tag["key"])
            is_typed = self._syntax.json_values or types_of(schema, parameters) is not None
            value = tag["value"]
            values[tag["key"]] = read_value(value, schema, parameters) if is_typed else value

        return values


def _fill(template: object, values: Mapping[str, Any]) -> object:
    if isinstance(template, Mapping):
        return {key: _fill(value, values) for key, value in template.items()}

    if isinstance(template, list):
        return [_fill(value, values) for value in template]

    placeholder = _PLACEHOLDER.fullmatch(template) if isinstance(template, str) else None
    return template if placeholder is None else values[placeholder[1]]


def _calls_of(value: object) -> Iterator[Call]:
    """OpenAI's calls: one or a list, with or without what stands around the function."""
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, Mapping):
            raise TypeError("a call is an object")

        function = item.get("function", item)
        name, arguments = function["name"], function.get("arguments", {})
        if not isinstance(name, str) or not name:
            raise ValueError("a call has a name")

        if not isinstance(arguments, str):
            arguments = write_arguments(_as_object(arguments))

        yield Call(name, arguments)


def _as_object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("arguments are an object")

    return value
