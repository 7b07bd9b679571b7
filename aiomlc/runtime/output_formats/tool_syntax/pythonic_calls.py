"""Tool calls as a list of Python calls with literal keyword arguments."""

from __future__ import annotations

__all__ = ("PythonicCalls",)

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from keyword import kwlist
from typing import final

from aiomlc.runtime.output_formats.tool_syntax.pythonic_rules import PythonicRules
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

_HEAD = re.compile(r"\s*[^\W\d][\w.]{0,127}\s*\(")
_INCOMPLETE_HEAD = re.compile(r"\s*([^\W\d][\w.]{0,127}\s*)?")
_KEYWORDS = "|".join(kwlist)
_STRING_OR_KEYWORD = re.compile(
    rf"""\b(?P<keyword>{_KEYWORDS})(?=\s*=)|"""
    r"""(?P<prefix>\b[a-zA-Z]{1,2})?(?P<quote>'''|\"\"\"|'|")"""
    r"""(?P<body>(?:\\.|(?!(?P=quote))[^\\])*)(?P=quote)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|(.))|\n", re.DOTALL)
_KNOWN_ESCAPES = frozenset("\n\\'\"abfnrtvxNuU")
_ESCAPED_KEYWORD = "__keyword__"
_JSON_CONSTANTS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class PythonicCalls(ToolSyntax):
    """`[f(a=1, b="x"), g()]`, or a single call without the brackets."""

    is_list: bool = True  #: Whether the calls are enclosed in brackets.

    @property
    def call_prefix(self) -> str:
        return "[" if self.is_list else ""

    def create_parser(self, position: int, context: CallContext) -> _CallParser:
        del context
        return _CallParser(position, is_list=self.is_list)

    def grammar_rules(
        self, tools: Sequence[ToolSchema], literal: Callable[[str], str], *, allow_parallel: bool
    ) -> list[str]:
        rules = []
        for number, tool in enumerate(tools):
            call, call_rules = PythonicRules(f"c{number}", tool, literal).call()
            rules += [*call_rules, f"object_{number}: {call}"]

        rules.append(object_rule(tools))
        if not self.is_list:
            return [*rules, "body: object"]

        more = '(", " object)*' if allow_parallel else ""
        return [*rules, f'body: "[" object {more} "]"']

    def render(self, calls: Sequence[HistoryCall]) -> list[str]:
        rendered = [
            f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
            for name, arguments in calls
        ]
        return [f"[{', '.join(rendered)}]"] if self.is_list else rendered


@final
class _CallParser:
    def __init__(self, position: int, *, is_list: bool) -> None:
        self._position = position
        self._is_list = is_list
        self._scanner: _BracketScanner | None = None

    def parse(self, text: str) -> ParseStep | None:
        if self._scanner is None:
            start = self._position + self._is_list  # After the opening bracket of a list.
            head = _HEAD.match(text, start)
            if head is None:
                return None if _INCOMPLETE_HEAD.fullmatch(text, start) else NotACall(start)

            self._scanner = _BracketScanner(self._position if self._is_list else head.end() - 1)

        end = self._scanner.find_end(text)
        if end is None:
            return None

        source = text[self._position : end]
        calls = _parse_calls(source if self._is_list else f"[{source}]")
        return NotACall(end) if calls is None else CompleteCalls(calls, end)


@final
class _BracketScanner:
    """Incremental scanner for the end of a bracketed Python expression."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._depth = 0
        self._quote = ""  # The closing quote of the current string; empty outside of strings.

    def find_end(self, text: str) -> int | None:
        """Return the index after the closing bracket, or None while the bracket is open."""
        while self._position < len(text):
            length = self._scan_string(text) if self._quote else self._scan_code(text)
            self._position += length
            if not length:
                return None

            if self._depth == 0:
                return self._position

        return None

    def _scan_code(self, text: str) -> int:
        """Return the number of characters scanned outside of a string; 0 if undecided."""
        character = text[self._position]
        if character in "\"'":
            start = text[self._position : self._position + 3]
            if start in (character, character * 2) and self._position + len(start) == len(text):
                return 0  # It may become a triple quote.

            self._quote = character * 3 if start == character * 3 else character
            return len(self._quote)

        self._depth += (character in "[({") - (character in "])}")
        return 1

    def _scan_string(self, text: str) -> int:
        """Return the number of characters scanned within a string; 0 if undecided."""
        rest = text[self._position : self._position + 3]
        if rest.startswith("\\"):
            return 2 if len(rest) > 1 else 0

        if rest.startswith(self._quote):
            length = len(self._quote)
            self._quote = ""
            return length

        return 0 if len(rest) < len(self._quote) and self._quote.startswith(rest) else 1


def _parse_calls(text: str) -> tuple[Call, ...] | None:
    """Return the calls in a list, or None if the text is anything else."""
    try:
        tree = ast.parse(_STRING_OR_KEYWORD.sub(_repair, text), mode="eval")
        body = _JsonConstants().visit(tree).body
        return tuple(_parse_call(item) for item in body.elts)
    except (SyntaxError, TypeError, ValueError, AttributeError, RecursionError, MemoryError):
        return None


def _parse_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("expected a call with keyword arguments only")

    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("`**` arguments are not supported")

        arguments[keyword.arg.removeprefix(_ESCAPED_KEYWORD)] = ast.literal_eval(keyword.value)

    return Call(_dotted_name(node.func), dump_arguments(arguments))


def _dotted_name(node: ast.expr) -> str:
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, name):
            return f"{_dotted_name(value)}.{name}"
        case _:
            raise ValueError("expected a call to a dotted name")


class _JsonConstants(ast.NodeTransformer):
    """A transformer that replaces the JSON names `true`, `false` and `null` by constants."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in _JSON_CONSTANTS:
            return node

        return ast.copy_location(ast.Constant(_JSON_CONSTANTS[node.id]), node)


def _repair(match: re.Match[str]) -> str:
    """Return valid Python for a construct that models generate but Python rejects.

    An argument name that is a Python keyword gets a prefix. The backslash of an unknown escape
    sequence is escaped, which Python would only do with a warning. A line break within a
    single-quoted string becomes an escape sequence.
    """
    if match["keyword"]:
        return _ESCAPED_KEYWORD + match["keyword"]

    prefix, quote = match["prefix"] or "", match["quote"]
    if "r" in prefix.lower():
        return match[0]

    def repair_escape(escape: re.Match[str]) -> str:
        if escape[0] == "\n":
            return "\n" if len(quote) == 3 else "\\n"

        is_known = int(escape[1], 8) < 0o400 if escape[1] else escape[2] in _KNOWN_ESCAPES
        return escape[0] if is_known else "\\" + escape[0]

    return f"{prefix}{quote}{_ESCAPE.sub(repair_escape, match['body'])}{quote}"
