"""Calls as JSON objects with `name` and `arguments` (or `parameters`)."""

from __future__ import annotations

__all__ = ("JsonCalls",)

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from aiomlc.runtime.grammar.grammar import lark_json, lark_text
from aiomlc.runtime.output_formats.tool_syntax.json_object import ObjectScanner
from aiomlc.runtime.output_formats.tool_syntax.syntax import (
    Call,
    CallContext,
    CompleteCalls,
    HistoryCall,
    NotACall,
    PartialCall,
    Reading,
    ToolSchema,
    write_arguments,
)

# The order in which models write a call: from here its arguments can be passed on as they come.
_HEADER = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """`{"name": "f", "arguments": {...}}`; the fields say how a grammar lays it out."""

    between: str = ""
    before: str = ""
    separator: str = ""  #: Empty: every call has marks of its own.
    after: str = ""
    arguments_key: str = "arguments"

    @property
    def opens(self) -> str:
        """See `ToolSyntax`."""
        return "{"

    @property
    def repeats(self) -> bool:
        """See `ToolSyntax`."""
        return True

    @property
    def marks(self) -> tuple[str, ...]:
        """See `ToolSyntax`."""
        return ()

    def open_call(self, at: int, place: CallContext) -> _CallParser:
        """See `ToolSyntax`."""
        return _CallParser(at, place)

    def rules(
        self, tools: Sequence[ToolSchema], write: Callable[[str], str], *, may_repeat: bool
    ) -> list[str]:
        """See `ToolSyntax`."""
        rules = [rule for number, tool in enumerate(tools) for rule in self._of_tool(number, tool)]
        rules.append("object: " + " | ".join(f"object_{number}" for number in range(len(tools))))
        repeats = may_repeat and self.separator
        more = f"({write(self.separator)} object)*" if repeats else ""
        rules.append(f"body: {write(self.before)} object {more} {write(self.after)}")
        return rules

    def write(self, calls: Sequence[HistoryCall]) -> list[str]:
        """See `ToolSyntax`."""
        objects = [
            json.dumps({"name": name, self.arguments_key: arguments}, ensure_ascii=False)
            for name, arguments in calls
        ]
        bodies = [self.separator.join(objects)] if self.separator else objects
        return [f"{self.before}{body}{self.after}" for body in bodies]

    def _of_tool(self, number: int, tool: ToolSchema) -> list[str]:
        # The name is text of its own, so that references within the parameters stay what they are.
        head = f'{{"name": {json.dumps(tool.name)}, "{self.arguments_key}": '
        return [
            f"arguments_{number}: {lark_json(tool.parameters)}",
            f'object_{number}: {lark_text(head)} arguments_{number} "}}"',
        ]


@final
class _CallParser:
    def __init__(self, at: int, place: CallContext) -> None:
        self._at = at
        self._place = place
        self._scanner = ObjectScanner(position=at)

    def read(self, text: str) -> Reading | None:
        header = _HEADER.match(text, self._at)
        if header is not None:
            return PartialCall(header[1], header.end(), _Tail(self._place.end_mark).find_end)

        end = self._scanner.find_end(text)
        if end is None:
            return None

        call = _read_call(text[self._at : end], lenient=self._place.is_marked)
        return NotACall(end) if call is None else CompleteCalls((call,), end)


@final
class _Tail:
    """What follows the arguments within the object, up to its brace or a mark without one."""

    def __init__(self, end_mark: str) -> None:
        self._end_mark = end_mark
        self._scanner = ObjectScanner(depth=1)

    def find_end(self, text: str) -> int | None:
        end = self._scanner.find_end(text)
        marked = text.find(self._end_mark) if self._end_mark else -1
        return marked if marked >= 0 and (end is None or marked < end) else end


def _read_call(text: str, *, lenient: bool) -> Call | None:
    """A call's name and its arguments as JSON; None if the object is no call."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return None

    name = call.get("name")
    missing: dict[str, Any] | None = (
        {} if lenient else None
    )  # A function without parameters needs no arguments.
    arguments = call.get("arguments", call.get("parameters", missing))
    if not isinstance(name, str) or not name:
        return None

    if isinstance(arguments, str):
        return Call(name, arguments)

    try:
        return Call(name, write_arguments(arguments)) if isinstance(arguments, dict) else None
    except ValueError:
        return None
