"""Tool calls as a function name and a JSON object, separated by markers."""

# A frozen field overrides a property, as mypy allows.
# pyright: reportIncompatibleMethodOverride=false

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
    ParseStep,
    PartialCall,
    ToolSchema,
    ToolSyntax,
    object_rule,
)

# The length limit bounds the rescanning of text in which a name never ends.
_NAME = re.compile(r"[\w.:/-]{1,128}")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class NamedJsonCalls(ToolSyntax):
    """`name <marker> {...}`, optionally with a call id between the name and the arguments."""

    arguments_marker: str  #: Between the name (or the id) and the arguments.
    call_prefix: str = ""
    arguments_end: str = ""  #: Between the arguments and `call_suffix`; optional when parsing.
    call_suffix: str = ""
    id_marker: str = ""  #: Between the name and an optional call id; empty if there are no ids.
    separator: str = ""
    allows_multiple: bool = False
    markers: tuple[str, ...] = ()

    def create_parser(self, position: int, context: CallContext) -> _CallParser:
        return _CallParser(self, position, context)

    def grammar_rules(
        self, tools: Sequence[ToolSchema], literal: Callable[[str], str], *, allow_parallel: bool
    ) -> list[str]:
        rules = []
        for number, tool in enumerate(tools):
            rules.append(f"arguments_{number}: {lark_json(tool.parameters)}")
            head = f"{literal(self.call_prefix + tool.name)} call_id"
            head += f" {literal(self.arguments_marker)}"
            tail = literal(self.arguments_end + self.call_suffix)
            rules.append(f"object_{number}: {head} arguments_{number} {tail}")

        rules.append(object_rule(tools))
        id_rule = f"({literal(self.id_marker)} /[a-zA-Z0-9]{{9}}/)?" if self.id_marker else '""'
        is_list = allow_parallel and self.allows_multiple
        more = f"({literal(self.separator)} object)*" if is_list else ""
        return [*rules, f"call_id: {id_rule}", f"body: object {more}"]

    def render(self, calls: Sequence[HistoryCall]) -> list[str]:
        before, after = self.arguments_marker, self.arguments_end + self.call_suffix
        bodies = [
            f"{self.call_prefix}{name}{before}{json.dumps(arguments, ensure_ascii=False)}{after}"
            for name, arguments in calls
        ]
        return [self.separator.join(bodies)] if self.allows_multiple else bodies


@final
class _CallParser:
    def __init__(self, syntax: NamedJsonCalls, position: int, context: CallContext) -> None:
        self._syntax = syntax
        self._position = position + len(syntax.call_prefix)
        self._context = context

    def parse(self, text: str) -> ParseStep | None:
        name = _NAME.match(text, self._position)
        if name is None:
            return None if self._position == len(text) else NotACall(self._position)

        position = name.end()
        call_id = None
        id_marker = self._syntax.id_marker
        if id_marker and text.startswith(id_marker, position):
            position += len(id_marker)
            call_id = _NAME.match(text, position)
            position = call_id.end() if call_id else position

        arguments_marker = self._syntax.arguments_marker
        if not text.startswith(arguments_marker, position):
            is_incomplete = any(
                marker.startswith(text[position:]) for marker in (arguments_marker, id_marker)
            )
            return None if is_incomplete else NotACall(position)

        space = _SPACE.match(text, position + len(arguments_marker))
        assert space is not None, "the pattern also matches the empty string"
        if space.end() == len(text):
            return None

        if text[space.end()] != "{":
            return NotACall(space.end())

        return PartialCall(name[0], space.end(), self._find_call_end, call_id and call_id[0])

    def _find_call_end(self, text: str) -> int | None:
        """Return the index after `call_suffix`.

        If the suffix is missing, the call ends at the next call or at the end marker.
        """
        syntax = self._syntax
        if not syntax.call_suffix:
            return 0

        ends = [(text.find(syntax.call_suffix), len(syntax.call_suffix))]
        terminators = (syntax.call_prefix, self._context.end_marker)
        ends += [(text.find(marker), 0) for marker in terminators if marker]
        first = min((end for end in ends if end[0] >= 0), default=None)
        return first and sum(first)
