"""Tool calls in which each argument has tags and an unquoted value."""

# A frozen field overrides a property, as mypy allows.
# pyright: reportIncompatibleMethodOverride=false

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
    ParseStep,
    ToolSchema,
    ToolSyntax,
    dump_arguments,
    object_rule,
)
from aiomlc.runtime.output_formats.tool_syntax.tagged_rules import ArgumentLayout, TaggedRules
from aiomlc.runtime.output_formats.tool_syntax.typed_value import parse_value, schema_of

# The length limits bound the rescanning of text in which a name never ends.
_NAME = re.compile(r"[\w.:/-]{0,128}")
_KEY = re.compile(r"[^<>\n]{0,128}")
_SPACE = re.compile(r"\s*")

# A coroutine that yields whenever it needs more text.
_Steps = Generator[None, None, Any]


@dataclass(frozen=True, slots=True)
class TaggedCalls(ToolSyntax):
    """A function name, then tags around the key and the value of each argument."""

    key_start: str
    key_end: str
    value_end: str
    call_prefix: str = ""
    name_end: str = ""
    value_start: str = ""  #: Empty if the value directly follows the key.
    call_suffix: str = ""  #: Empty if the end marker of the tool format ends the call.
    padding: str = ""  #: Text before and after a value that is not part of the value.
    prefix: str = ""  #: Between the start marker and the call.
    suffix: str = ""  #: Between the call and the end marker.
    markers: tuple[str, ...] = ()

    def create_parser(self, position: int, context: CallContext) -> _CallParser:
        return _CallParser(self, position + len(self.call_prefix), context)

    def grammar_rules(
        self, tools: Sequence[ToolSchema], literal: Callable[[str], str], *, allow_parallel: bool
    ) -> list[str]:
        del allow_parallel  # Each call has its own markers, so `tool_grammar` repeats the calls.
        layout = ArgumentLayout(
            before_key=self.key_start,
            before_value=self.key_end
            + (self.value_start and "\n" + self.value_start)
            + self.padding,
            after_json=self.padding + self.value_end,
            value_end=self.value_end,
            after_argument="\n",
        )
        rules = []
        for number, tool in enumerate(tools):
            builder = TaggedRules(f"c{number}", tool, layout, literal)
            arguments, argument_rules = builder.arguments()
            head = literal(f"{self.call_prefix}{tool.name}{self.name_end}\n")
            call = f"{head} {arguments} {literal(self.call_suffix)}"
            rules += [*argument_rules, f"object_{number}: {call}"]

        rules.append(object_rule(tools))
        return [*rules, f"body: {literal(self.prefix)} object {literal(self.suffix)}"]

    def render(self, calls: Sequence[HistoryCall]) -> list[str]:
        bodies = []
        for name, arguments in calls:
            rendered = "".join(map(self._render_argument, arguments.items()))
            head = f"{self.prefix}{self.call_prefix}{name}{self.name_end}\n"
            bodies.append(f"{head}{rendered}{self.call_suffix}{self.suffix}")

        return bodies

    def _render_argument(self, argument: tuple[str, object]) -> str:
        key, value = argument
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        value_start = self.value_start and f"\n{self.value_start}"
        head = f"{self.key_start}{key}{self.key_end}{value_start}{self.padding}"
        return f"{head}{text}{self.padding}{self.value_end}\n"


@final
class _CallParser:
    """A generator-based parser, which suspends until there is enough text to decide."""

    def __init__(self, syntax: TaggedCalls, position: int, context: CallContext) -> None:
        self._syntax = syntax
        self._context = context
        self._call_end = syntax.call_suffix or context.end_marker
        self._text = ""
        self._position = position
        self._steps = self._parse_call()

    def parse(self, text: str) -> ParseStep | None:
        self._text = text
        try:
            next(self._steps)
        except StopIteration as stop:
            step: ParseStep = stop.value
            return step

        return None

    def _parse_call(self) -> _Steps:
        name = yield from self._match(_NAME)
        if not name or not (yield from self._skip(self._syntax.name_end)):
            return NotACall(self._position)

        parameters = self._context.parameters.get(name, {})
        arguments: dict[str, object] = {}
        while (tag := (yield from self._next_tag())) == self._syntax.key_start:
            key = yield from self._parse_key()
            if not key:
                return NotACall(self._position)

            text = yield from self._parse_unquoted_value()
            arguments[key] = parse_value(text, schema_of(parameters, key), parameters)

        if not tag:
            return NotACall(self._position)

        # The end marker of the tool format is not part of the call.
        end = self._position if self._syntax.call_suffix else self._position - len(tag)
        return CompleteCalls((Call(name, dump_arguments(arguments)),), end)

    def _next_tag(self) -> _Steps:
        """Skip the tag that starts an argument or ends the call; return it, or "" for others."""
        yield from self._match(_SPACE)
        for tag in (self._syntax.key_start, self._call_end):
            if (yield from self._skip(tag)):
                return tag

        return ""

    def _parse_key(self) -> _Steps:
        """Return the key and skip the text up to the value; "" if the key is malformed."""
        key = yield from self._match(_KEY)
        if not (yield from self._skip(self._syntax.key_end)):
            return ""

        if self._syntax.value_start:
            yield from self._match(_SPACE)
            if not (yield from self._skip(self._syntax.value_start)):
                return ""

        return key.strip()

    def _parse_unquoted_value(self) -> _Steps:
        """Return the text up to `value_end`.

        An occurrence of `value_end` belongs to the value unless another argument or the end of
        the call follows.
        """
        start = self._position
        while True:
            end = yield from self._find(self._syntax.value_end)
            after_value = self._position = end + len(self._syntax.value_end)
            tag = yield from self._next_tag()
            self._position = after_value
            if tag:
                padding = self._syntax.padding
                return self._text[start:end].removeprefix(padding).removesuffix(padding)

    def _match(self, pattern: re.Pattern[str]) -> _Steps:
        """Wait until text follows the match of the pattern; consume and return the match."""
        while True:
            match = pattern.match(self._text, self._position)
            assert match is not None, "the patterns also match the empty string"
            if match.end() < len(self._text):
                self._position = match.end()
                return match[0]

            yield

    def _skip(self, tag: str) -> _Steps:
        """Skip `tag` if it is next; return whether it was."""
        while len(self._text) < self._position + len(tag) and tag.startswith(
            self._text[self._position :]
        ):
            yield

        is_next = self._text.startswith(tag, self._position)
        self._position += len(tag) if is_next else 0
        return is_next

    def _find(self, tag: str) -> _Steps:
        """Return the index of the next occurrence of `tag`."""
        while (index := self._text.find(tag, self._position)) < 0:
            self._position = max(self._position, len(self._text) - len(tag) + 1)
            yield

        return index
