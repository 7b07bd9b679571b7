"""Calls as a name and a JSON object, with marks around both."""

from __future__ import annotations

__all__ = ("NamedJsonCalls",)

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from aiomlc.runtime.grammar.grammar import lark_json
from aiomlc.runtime.output_formats.tool_syntax.syntax import (
    CallContext,
    HistoryCall,
    NotACall,
    PartialCall,
    Reading,
    ToolSchema,
)

# The bound keeps a text that never ends a name from being looked at again and again.
_NAME = re.compile(r"[\w.:/-]{1,128}")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class NamedJsonCalls:
    """A name, a mark, a JSON object."""

    arguments_mark: str  #: Between the name and the arguments.
    opens: str = ""
    arguments_end: str = ""  #: Stands between the arguments and `closes`; is not asked for.
    closes: str = ""
    id_mark: str = ""  #: Empty: calls have no id; otherwise it may follow the name, behind this.
    separator: str = ""
    repeats: bool = False
    marks: tuple[str, ...] = ()

    @property
    def between(self) -> str:
        """See `ToolSyntax`."""
        return ""

    def open_call(self, at: int, place: CallContext) -> _CallParser:
        """See `ToolSyntax`."""
        return _CallParser(self, at, place)

    def rules(
        self, tools: Sequence[ToolSchema], write: Callable[[str], str], *, may_repeat: bool
    ) -> list[str]:
        """See `ToolSyntax`."""
        rules = []
        for number, tool in enumerate(tools):
            rules.append(f"arguments_{number}: {lark_json(tool.parameters)}")
            head = f"{write(self.opens + tool.name)} call_id {write(self.arguments_mark)}"
            tail = write(self.arguments_end + self.closes)
            rules.append(f"object_{number}: {head} arguments_{number} {tail}")

        rules.append("object: " + " | ".join(f"object_{number}" for number in range(len(tools))))
        id_rule = f"({write(self.id_mark)} /[a-zA-Z0-9]{{9}}/)?" if self.id_mark else '""'
        more = f"({write(self.separator)} object)*" if may_repeat and self.repeats else ""
        return [*rules, f"call_id: {id_rule}", f"body: object {more}"]

    def write(self, calls: Sequence[HistoryCall]) -> list[str]:
        """See `ToolSyntax`."""
        before, behind = self.arguments_mark, self.arguments_end + self.closes
        bodies = [
            f"{self.opens}{name}{before}{json.dumps(arguments, ensure_ascii=False)}{behind}"
            for name, arguments in calls
        ]
        return [self.separator.join(bodies)] if self.repeats else bodies


@final
class _CallParser:
    def __init__(self, syntax: NamedJsonCalls, at: int, place: CallContext) -> None:
        self._syntax = syntax
        self._at = at + len(syntax.opens)
        self._place = place

    def read(self, text: str) -> Reading | None:
        name = _NAME.match(text, self._at)
        if name is None:
            return None if self._at == len(text) else NotACall(self._at)

        at = name.end()
        call_id = None
        id_mark = self._syntax.id_mark
        if id_mark and text.startswith(id_mark, at):
            call_id = _NAME.match(text, at + len(id_mark))
            at = call_id.end() if call_id else at + len(id_mark)

        mark = self._syntax.arguments_mark
        if not text.startswith(mark, at):
            may_come = any(wanted.startswith(text[at:]) for wanted in (mark, id_mark))
            return None if may_come else NotACall(at)

        space = _SPACE.match(text, at + len(mark))
        assert space is not None, "it matches nothing, too"
        if space.end() == len(text):
            return None

        if text[space.end()] != "{":
            return NotACall(space.end())

        return PartialCall(name[0], space.end(), self._find_end, call_id and call_id[0])

    def _find_end(self, text: str) -> int | None:
        """The end of what closes the call, or where the next one begins without it."""
        syntax = self._syntax
        if not syntax.closes:
            return 0

        found = [(text.find(syntax.closes), len(syntax.closes))]
        found += [(text.find(mark), 0) for mark in (syntax.opens, self._place.end_mark) if mark]
        first = min((item for item in found if item[0] >= 0), default=None)
        return first and sum(first)
