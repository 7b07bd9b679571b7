"""Calls as a model's own response template describes them, by patterns."""

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
    Reading,
    ToolSchema,
    write_arguments,
)
from aiomlc.runtime.output_formats.tool_syntax.typed_value import read_value, schema_of, types_of

#: A value by its name, or a field of one: `{content.name}`.
PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")


@dataclass(frozen=True, slots=True)
class RegionEnd:
    """What closes a region; the end of the answer always does."""

    pattern: re.Pattern[str]
    longest: int | None = None  #: Characters that may match; None: nobody knows.
    may_grow: bool = False  #: What matches at the end of a text may match more of a longer one.

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> RegionEnd:
        """One of some texts: the first that is there, and the longest of those."""
        ordered = sorted(texts, key=len, reverse=True)
        grows = any(one != other and one.startswith(other) for one in texts for other in texts)
        return cls(re.compile("|".join(map(re.escape, ordered))), len(ordered[0]), grows)


@dataclass(frozen=True, slots=True)
class TemplatedCalls:
    """A region that a pattern opens, turned into calls by a template."""

    begin: str  #: What the pattern begins with; the mark of the format.
    open_pattern: re.Pattern[str]  #: Its groups are values of the template.
    end: RegionEnd | None  #: None: only the end of the answer closes it.
    content: RegionContent
    transform: Any = None  #: JSON; `"{name}"` in it is a value. None: the content as it is.
    of_each: bool = False  #: The content is a list, and the template is that of an item.
    marks: tuple[str, ...] = ()

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

    def open_call(self, at: int, place: CallContext) -> _RegionReader:
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

    def write(self, calls: Sequence[HistoryCall]) -> list[str]:
        """See `ToolSyntax`."""
        raise BadRequestError(
            "messages: this model's response template does not say how calls are written",
            param="messages",
        )


@final
class _RegionReader:
    def __init__(self, syntax: TemplatedCalls, at: int, place: CallContext) -> None:
        self._syntax = syntax
        self._place = place
        self._begin: int | None = None
        self._at = at

    def read(self, text: str) -> Reading | None:
        """See `CallParser`."""
        if self._begin is None:  # Of the mark, behind which whitespace may stand.
            self._begin = text.rindex(self._syntax.begin, 0, self._at)

        end = self._syntax.end
        close = None if end is None else end.pattern.search(text, self._at)
        if close is not None and not (end and end.may_grow and close.end() == len(text)):
            return self._read_region(text, close.start(), close.end())

        if close is None and end is not None and end.longest is not None:
            self._at = max(self._at, len(text) - end.longest + 1)

        return None

    def read_end(self, text: str) -> Reading:
        """See `FinalizableParser`."""
        end = self._syntax.end
        close = None if end is None else end.pattern.search(text, self._at)
        if close is not None:
            return self._read_region(text, close.start(), close.end())

        return self._read_region(text, len(text), len(text))

    def _read_region(self, text: str, close: int, end: int) -> Reading:
        assert self._begin is not None, "set by read"
        opening = self._syntax.open_pattern.match(text, self._begin, close)
        if opening is None:  # The mark alone is no call: another may follow.
            return NotACall(self._begin + len(self._syntax.begin))

        try:
            calls = tuple(self._calls(opening.groupdict(), text[opening.end() : close]))
        except (KeyError, TypeError, ValueError, RecursionError):
            return NotACall(end)

        return CompleteCalls(calls, end) if calls else NotACall(end)

    def _calls(self, captured: Mapping[str, Any], text: str) -> Iterator[Call]:
        syntax = self._syntax
        parameters = self._place.parameters.get(str(captured.get("name")), {})

        def typed(key: str, value: str) -> tuple[object] | None:
            schema = schema_of(parameters, key)
            is_known = types_of(schema, parameters) is not None
            return (read_value(value, schema, parameters),) if is_known else None

        parsed = syntax.content.read(text, typed)
        for item in parsed if syntax.of_each else [parsed]:
            own = item if syntax.of_each and isinstance(item, Mapping) else {}
            values = {**captured, **own, "content": item}
            filled = item if syntax.transform is None else _fill(syntax.transform, values)
            yield from _calls_of(filled)


def _fill(template: object, values: Mapping[str, Any]) -> object:
    if isinstance(template, Mapping):
        return {key: _fill(value, values) for key, value in template.items()}

    if isinstance(template, list):
        return [_fill(value, values) for value in template]

    placeholder = PLACEHOLDER.fullmatch(template) if isinstance(template, str) else None
    if placeholder is None:
        return template

    value: Any = values
    for name in placeholder[1].split("."):
        value = value[name]

    return value


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
