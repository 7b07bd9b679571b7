"""Tool calls of Gemma 4: `call:name{key:value}`, whose strings have delimiters of their own."""

from __future__ import annotations

__all__ = ("Gemma4Calls",)

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from aiomlc.runtime.output_formats.tool_syntax.gemma4_rules import (
    QUOTE,
    Gemma4Rules,
    render_value,
)
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
    object_rule,
)

_PREFIX: Final = "call:"
_HEAD = re.compile(r"\s*call:([\w.\-]{1,128})\{")
_INCOMPLETE_HEAD = re.compile(r"\s*(?:c|ca|cal|call|call:[\w.\-]{0,128})?")
_STRUCTURE = re.compile(r'<\|"\|>|[\[\]{}]')
_KEY = re.compile(r"\s*([^\s,:{}\[\]]+)\s*:")
_SCALAR = re.compile(r"[^,{}\[\]]+")
_CONSTANTS = {"None": None, "True": True, "False": False}


@dataclass(frozen=True, slots=True)
class Gemma4Calls(ToolSyntax):
    """`call:f{a:1,b:<|"|>x<|"|>}`, in which keys need no delimiters."""

    @property
    def call_prefix(self) -> str:
        return _PREFIX

    @property
    def markers(self) -> tuple[str, ...]:
        return (QUOTE,)

    def create_parser(self, position: int, context: CallContext) -> _CallParser:
        del context
        return _CallParser(position)

    def grammar_rules(
        self, tools: Sequence[ToolSchema], literal: Callable[[str], str], *, allow_parallel: bool
    ) -> list[str]:
        del allow_parallel  # Each call has markers of its own.
        rules = []
        for number, tool in enumerate(tools):
            arguments, own = Gemma4Rules(f"c{number}", tool, literal).arguments()
            head = literal(f"{_PREFIX}{tool.name}")
            rules += [*own, f"object_{number}: {head} {arguments}"]

        return [*rules, object_rule(tools), "body: object"]

    def render(self, calls: Sequence[HistoryCall]) -> list[str]:
        return [f"{_PREFIX}{name}{render_value(arguments)}" for name, arguments in calls]


@final
class _CallParser:
    def __init__(self, position: int) -> None:
        self._begin = position
        self._name = ""
        self._arguments = 0  # The index of the opening brace; 0 before the head is complete.
        self._position = position  # Where the search for the end goes on.
        self._depth = 0
        self._in_string = False

    def parse(self, text: str) -> ParseStep | None:
        if not self._arguments:
            head = _HEAD.match(text, self._begin)
            if head is None:
                is_open = _INCOMPLETE_HEAD.fullmatch(text, self._begin)
                return None if is_open else NotACall(self._begin)

            self._name, self._arguments = head[1], head.end() - 1
            self._position = self._arguments

        end = self._find_end(text)
        if end is None:
            return None

        try:
            arguments = _Values(text[self._arguments : end]).whole()
            return CompleteCalls((Call(self._name, dump_arguments(arguments)),), end)
        except (ValueError, RecursionError):
            return NotACall(end)

    def _find_end(self, text: str) -> int | None:
        """Return the index after the closing brace, or None while it is open."""
        for match in _STRUCTURE.finditer(text, self._position):
            self._position = match.end()
            if match[0] == QUOTE:
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if match[0] in "[{" else -1
                if self._depth == 0:
                    return match.end()

        # A delimiter of strings may be incomplete at the end of the text.
        self._position = max(self._position, len(text) - len(QUOTE) + 1)
        return None


@final
class _Values:
    """Reads values from a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def whole(self) -> Mapping[str, object]:
        """Return the object that the text is.

        Raises:
            ValueError: If it is none.
        """
        value = self._value()
        if not isinstance(value, Mapping) or self._position != len(self._text):
            raise ValueError("expected an object")

        return value

    def _value(self) -> object:
        self._skip_space()
        text, position = self._text, self._position
        if text.startswith(QUOTE, position):
            return self._string()

        match text[position : position + 1]:
            case "{":
                return dict(self._items("}", self._entry))
            case "[":
                return list(self._items("]", self._value))
            case _:
                return self._scalar()

    def _items(self, end: str, read: Callable[[], Any]) -> list[Any]:
        """Return what `read` gives between brackets."""
        items: list[Any] = []
        self._position += 1
        while not self._takes(end):
            if items and not self._takes(","):
                raise ValueError("expected a comma")

            items.append(read())
        return items

    def _takes(self, character: str) -> bool:
        self._skip_space()
        found = self._text.startswith(character, self._position)
        self._position += found
        return found

    def _skip_space(self) -> None:
        while self._text[self._position : self._position + 1].isspace():
            self._position += 1

    def _entry(self) -> tuple[str, object]:
        self._skip_space()
        if self._text.startswith(QUOTE, self._position):
            key = self._string()
            if not self._takes(":"):
                raise ValueError("expected a colon")

            return key, self._value()

        match = _KEY.match(self._text, self._position)
        if match is None:
            raise ValueError("expected a key")

        self._position = match.end()
        return match[1], self._value()

    def _string(self) -> str:
        begin = self._position + len(QUOTE)
        end = self._text.index(QUOTE, begin)
        self._position = end + len(QUOTE)
        return self._text[begin:end]

    def _scalar(self) -> object:
        match = _SCALAR.match(self._text, self._position)
        if match is None:
            raise ValueError("expected a value")

        self._position = match.end()
        text = match[0].strip()
        return _CONSTANTS[text] if text in _CONSTANTS else json.loads(text)
