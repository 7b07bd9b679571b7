"""Calls whose arguments are tagged one by one, with bare text as their values."""

from __future__ import annotations

__all__ = ("TaggedCalls",)

import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, final

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
from aiomlc.runtime.output_formats.tool_syntax.tagged_rules import ArgumentLayout, TaggedRules
from aiomlc.runtime.output_formats.tool_syntax.typed_value import read_value, schema_of

# The bounds keep a text that never ends a name from being looked at again and again.
_NAME = re.compile(r"[\w.:/-]{0,128}")
_KEY = re.compile(r"[^<>\n]{0,128}")
_SPACE = re.compile(r"\s*")

Steps = Generator[None, None, Any]


@dataclass(frozen=True, slots=True)
class TaggedCalls:
    """A name, and a tag for the key and the value of each argument."""

    key_begin: str
    key_end: str
    value_end: str
    opens: str = ""
    name_end: str = ""
    value_begin: str = ""  #: Empty: the value follows the key.
    closes: str = ""  #: Empty: the mark of the format closes the call.
    padding: str = ""  #: Stands on both sides of a value, and is no part of it.
    before: str = ""
    after: str = ""
    marks: tuple[str, ...] = ()

    @property
    def between(self) -> str:
        """See `ToolSyntax`."""
        return ""

    @property
    def repeats(self) -> bool:
        """See `ToolSyntax`."""
        return False

    def open_call(self, at: int, place: CallContext) -> _CallParser:
        """See `ToolSyntax`."""
        return _CallParser(self, at + len(self.opens), place)

    def rules(
        self, tools: Sequence[ToolSchema], write: Callable[[str], str], *, may_repeat: bool
    ) -> list[str]:
        """See `ToolSyntax`."""
        del may_repeat  # Each call has marks of its own.
        layout = ArgumentLayout(
            before_key=self.key_begin,
            before_value=self.key_end
            + (self.value_begin and "\n" + self.value_begin)
            + self.padding,
            after_json=self.padding + self.value_end,
            value_end=self.value_end,
            behind="\n",
        )
        rules = []
        for number, tool in enumerate(tools):
            arguments, more = TaggedRules(f"c{number}", tool, layout, write).arguments()
            head = write(f"{self.opens}{tool.name}{self.name_end}\n")
            rules += [*more, f"object_{number}: {head} {arguments} {write(self.closes)}"]

        rules.append("object: " + " | ".join(f"object_{number}" for number in range(len(tools))))
        return [*rules, f"body: {write(self.before)} object {write(self.after)}"]

    def write(self, calls: Sequence[HistoryCall]) -> list[str]:
        """See `ToolSyntax`."""
        bodies = []
        for name, arguments in calls:
            given = "".join(map(self._written, arguments.items()))
            head = f"{self.before}{self.opens}{name}{self.name_end}\n"
            bodies.append(f"{head}{given}{self.closes}{self.after}")

        return bodies

    def _written(self, argument: tuple[str, object]) -> str:
        key, value = argument
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        value_begin = self.value_begin and f"\n{self.value_begin}"
        head = f"{self.key_begin}{key}{self.key_end}{value_begin}{self.padding}"
        return f"{head}{text}{self.padding}{self.value_end}\n"


@final
class _CallParser:
    """Suspends wherever the text that is there does not decide, and goes on from there."""

    def __init__(self, syntax: TaggedCalls, at: int, place: CallContext) -> None:
        self._syntax = syntax
        self._place = place
        self._closes = syntax.closes or place.end_mark
        self._text = ""
        self._at = at
        self._steps = self._read_call()

    def read(self, text: str) -> Reading | None:
        self._text = text
        try:
            next(self._steps)
        except StopIteration as stop:
            reading: Reading = stop.value
            return reading

        return None

    def _read_call(self) -> Steps:
        name = yield from self._match(_NAME)
        if not name or not (yield from self._take(self._syntax.name_end)):
            return NotACall(self._at)

        parameters = self._place.parameters.get(name, {})
        arguments: dict[str, object] = {}
        while (mark := (yield from self._next_mark())) == self._syntax.key_begin:
            key = yield from self._read_key()
            if not key:
                return NotACall(self._at)

            text = yield from self._read_value()
            arguments[key] = read_value(text, schema_of(parameters, key), parameters)

        if not mark:
            return NotACall(self._at)

        # The mark of the format is for the parser to find.
        end = self._at if self._syntax.closes else self._at - len(mark)
        return CompleteCalls((Call(name, write_arguments(arguments)),), end)

    def _next_mark(self) -> Steps:
        yield from self._match(_SPACE)
        for mark in (self._syntax.key_begin, self._closes):
            if (yield from self._take(mark)):
                return mark

        return ""

    def _read_key(self) -> Steps:
        key = yield from self._match(_KEY)
        if not (yield from self._take(self._syntax.key_end)):
            return ""

        if self._syntax.value_begin:
            yield from self._match(_SPACE)
            if not (yield from self._take(self._syntax.value_begin)):
                return ""

        return key.strip()

    def _read_value(self) -> Steps:
        """Up to the mark behind which the call goes on; others are part of the value."""
        begin = self._at
        while True:
            end = yield from self._find(self._syntax.value_end)
            behind = self._at = end + len(self._syntax.value_end)
            mark = yield from self._next_mark()
            self._at = behind
            if mark:
                padding = self._syntax.padding
                return self._text[begin:end].removeprefix(padding).removesuffix(padding)

    def _match(self, pattern: re.Pattern[str]) -> Steps:
        """What matches here, once it is followed by something."""
        while True:
            found = pattern.match(self._text, self._at)
            assert found is not None, "the patterns match nothing, too"
            if found.end() < len(self._text):
                self._at = found.end()
                return found[0]

            yield

    def _take(self, mark: str) -> Steps:
        """Step behind `mark` if it stands here."""
        while len(self._text) < self._at + len(mark) and mark.startswith(self._text[self._at :]):
            yield

        is_there = self._text.startswith(mark, self._at)
        self._at += len(mark) if is_there else 0
        return is_there

    def _find(self, mark: str) -> Steps:
        """Where `mark` next is."""
        while (found := self._text.find(mark, self._at)) < 0:
            self._at = max(self._at, len(self._text) - len(mark) + 1)
            yield

        return found
