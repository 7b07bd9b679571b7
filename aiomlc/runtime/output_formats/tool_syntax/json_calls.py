"""Tool calls as JSON objects with the keys `name` and `arguments` (or their synonyms)."""

# A frozen field overrides a property, as mypy allows.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

__all__ = ("JsonCalls",)

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from aiomlc.runtime.grammar.grammar import lark_json, lark_literal
from aiomlc.runtime.output_formats.tool_syntax.json_object import ObjectScanner
from aiomlc.runtime.output_formats.tool_syntax.syntax import (
    Call,
    CallContext,
    CompleteCalls,
    HistoryCall,
    NotACall,
    ParseStep,
    PartialCall,
    ToolSchema,
    ToolSyntax,
    dump_arguments,
    object_rule,
)

# The key order of well-formed calls: after this header the arguments can be streamed.
_HEADER = re.compile(
    r'\{\s*"(?:tool_)?name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)


@dataclass(frozen=True, slots=True)
class JsonCalls(ToolSyntax):
    """`{"name": "f", "arguments": {...}}`; the string fields define the generated layout."""

    delimiters: str = ""
    prefix: str = ""  #: Between the start marker and the first call.
    separator: str = ""  #: Between calls; empty if every call has its own markers.
    suffix: str = ""  #: Between the last call and the end marker.
    name_key: str = "name"
    arguments_key: str = "arguments"
    ignored: tuple[str, ...] = ()  #: Names that stand for an answer without a call.

    @property
    def call_prefix(self) -> str:
        return "{"

    @property
    def allows_multiple(self) -> bool:
        return True

    def create_parser(self, position: int, context: CallContext) -> _CallParser:
        return _CallParser(position, context, self.ignored)

    def grammar_rules(
        self, tools: Sequence[ToolSchema], literal: Callable[[str], str], *, allow_parallel: bool
    ) -> list[str]:
        rules = [
            rule for number, tool in enumerate(tools) for rule in self._tool_rules(number, tool)
        ]
        rules.append(object_rule(tools))
        is_list = allow_parallel and self.separator
        more = f"({literal(self.separator)} object)*" if is_list else ""
        rules.append(f"body: {literal(self.prefix)} object {more} {literal(self.suffix)}")
        return rules

    def render(self, calls: Sequence[HistoryCall]) -> list[str]:
        objects = [
            json.dumps({self.name_key: name, self.arguments_key: arguments}, ensure_ascii=False)
            for name, arguments in calls
        ]
        bodies = [self.separator.join(objects)] if self.separator else objects
        return [f"{self.prefix}{body}{self.suffix}" for body in bodies]

    def _tool_rules(self, number: int, tool: ToolSchema) -> list[str]:
        # The header is not part of the schema, so that references within it stay valid.
        header = f'{{"{self.name_key}": {json.dumps(tool.name)}, "{self.arguments_key}": '
        return [
            f"arguments_{number}: {lark_json(tool.parameters)}",
            f'object_{number}: {lark_literal(header)} arguments_{number} "}}"',
        ]


@final
class _CallParser:
    def __init__(self, position: int, context: CallContext, ignored: tuple[str, ...]) -> None:
        self._position = position
        self._context = context
        self._ignored = ignored
        self._scanner = ObjectScanner(position=position)

    def parse(self, text: str) -> ParseStep | None:
        header = _HEADER.match(text, self._position)
        if header is not None and header[1] not in self._ignored:
            find_call_end = _TailScanner(self._context.end_marker).find_end
            return PartialCall(header[1], header.end(), find_call_end)

        end = self._scanner.find_end(text)
        if end is None:
            return None

        call = _parse_call(
            text[self._position : end], arguments_optional=self._context.has_start_marker
        )
        if call is None:
            return NotACall(end)

        return CompleteCalls(() if call.name in self._ignored else (call,), end)


@final
class _TailScanner:
    """Scanner for the end of a call after its arguments.

    The call ends after its closing brace, or at the end marker if the brace is missing.
    """

    def __init__(self, end_marker: str) -> None:
        self._end_marker = end_marker
        self._scanner = ObjectScanner(depth=1)

    def find_end(self, text: str) -> int | None:
        end = self._scanner.find_end(text)
        marker = text.find(self._end_marker) if self._end_marker else -1
        return marker if marker >= 0 and (end is None or marker < end) else end


def _parse_call(text: str, *, arguments_optional: bool) -> Call | None:
    """Return the call that a JSON object describes, or None if it does not describe one."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return None

    name = call.get("name", call.get("tool_name"))
    if not isinstance(name, str) or not name:
        return None

    # A function without parameters needs no arguments.
    keys = [key for key in ("arguments", "parameters") if key in call]
    arguments: object = call[keys[0]] if keys else {} if arguments_optional else None
    if keys and (arguments is None or (isinstance(arguments, str) and not arguments.strip())):
        arguments = {}

    if isinstance(arguments, str):
        return Call(name, arguments)

    try:
        return Call(name, dump_arguments(arguments)) if isinstance(arguments, dict) else None
    except ValueError:
        return None
