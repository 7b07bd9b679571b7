"""Calls as a list of Python's calls, with literals as arguments."""

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
    Reading,
    ToolSchema,
    write_arguments,
)

_HEAD = re.compile(r"\s*[^\W\d][\w.]{0,127}\s*\(")
_HALF_A_HEAD = re.compile(r"\s*([^\W\d][\w.]{0,127}\s*)?")
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
_NAMES_OF_JSON = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class PythonicCalls:
    """`[f(a=1, b="x"), g()]`, or one call without the brackets."""

    is_list: bool = True

    @property
    def opens(self) -> str:
        """See `ToolSyntax`."""
        return "[" if self.is_list else ""

    @property
    def between(self) -> str:
        """See `ToolSyntax`."""
        return ""

    @property
    def repeats(self) -> bool:
        """See `ToolSyntax`."""
        return False

    @property
    def marks(self) -> tuple[str, ...]:
        """See `ToolSyntax`."""
        return ()

    def open_call(self, at: int, place: CallContext) -> _PythonicReader:
        """See `ToolSyntax`."""
        del place
        return _PythonicReader(at, is_list=self.is_list)

    def rules(
        self, tools: Sequence[ToolSchema], write: Callable[[str], str], *, may_repeat: bool
    ) -> list[str]:
        """See `ToolSyntax`."""
        rules = []
        for number, tool in enumerate(tools):
            call, more = PythonicRules(f"c{number}", tool, write).call()
            rules += [*more, f"object_{number}: {call}"]

        rules.append("object: " + " | ".join(f"object_{number}" for number in range(len(tools))))
        if not self.is_list:
            return [*rules, "body: object"]

        others = '(", " object)*' if may_repeat else ""
        return [*rules, f'body: "[" object {others} "]"']

    def write(self, calls: Sequence[HistoryCall]) -> list[str]:
        """See `ToolSyntax`."""
        written = [
            f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
            for name, arguments in calls
        ]
        return [f"[{', '.join(written)}]"] if self.is_list else written


@final
class _PythonicReader:
    def __init__(self, at: int, *, is_list: bool) -> None:
        self._at = at
        self._is_list = is_list
        self._scanner: _BracketScanner | None = None

    def read(self, text: str) -> Reading | None:
        if self._scanner is None:
            inside = self._at + self._is_list
            head = _HEAD.match(text, inside)
            if head is None:
                return None if _HALF_A_HEAD.fullmatch(text, inside) else NotACall(inside)

            self._scanner = _BracketScanner(self._at if self._is_list else head.end() - 1)

        end = self._scanner.find_end(text)
        if end is None:
            return None

        region = text[self._at : end]
        calls = _read_calls(region if self._is_list else f"[{region}]")
        return NotACall(end) if calls is None else CompleteCalls(calls, end)


@final
class _BracketScanner:
    """Find where a bracket of Python's is closed, in a text that grows."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._depth = 0
        self._quote = ""  # What ends the string that is open.

    def find_end(self, text: str) -> int | None:
        """The position behind the bracket that closes the first; None while that is to come."""
        while self._position < len(text):
            length = self._read_string(text) if self._quote else self._read_code(text)
            self._position += length
            if not length:
                return None

            if self._depth == 0:
                return self._position

        return None

    def _read_code(self, text: str) -> int:
        character = text[self._position]
        if character in "\"'":
            start = text[self._position : self._position + 3]
            if start in (character, character * 2) and self._position + len(start) == len(text):
                return 0  # Three of them would be one quote.

            self._quote = character * 3 if start == character * 3 else character
            return len(self._quote)

        self._depth += (character in "[({") - (character in "])}")
        return 1

    def _read_string(self, text: str) -> int:
        rest = text[self._position : self._position + 3]
        if rest.startswith("\\"):
            return 2 if len(rest) > 1 else 0

        if rest.startswith(self._quote):
            length = len(self._quote)
            self._quote = ""
            return length

        return 0 if len(rest) < len(self._quote) and self._quote.startswith(rest) else 1


def _read_calls(text: str) -> tuple[Call, ...] | None:
    """The calls of a list; None if it holds anything else."""
    try:
        tree = ast.parse(_STRING_OR_KEYWORD.sub(_repair, text), mode="eval")
        listed = _NamesOfJson().visit(tree).body
        return tuple(_read_call(item) for item in listed.elts)
    except (SyntaxError, TypeError, ValueError, AttributeError, RecursionError, MemoryError):
        return None


def _read_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("an argument without a name")

    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("arguments without names")

        arguments[keyword.arg.removeprefix(_ESCAPED_KEYWORD)] = ast.literal_eval(keyword.value)

    return Call(_dotted_name(node.func), write_arguments(arguments))


def _dotted_name(node: ast.expr) -> str:
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, name):
            return f"{_dotted_name(value)}.{name}"
        case _:
            raise ValueError("what is called has no name")


class _NamesOfJson(ast.NodeTransformer):
    """Models that know JSON write its names of constants too."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in _NAMES_OF_JSON:
            return node

        return ast.copy_location(ast.Constant(_NAMES_OF_JSON[node.id]), node)


def _repair(found: re.Match[str]) -> str:
    """What models take for Python and Python does not.

    Arguments may be named as keywords are. Escapes that Python does not know are backslashes, as
    it reads them with a warning. Strings may last longer than a line.
    """
    if found["keyword"]:
        return _ESCAPED_KEYWORD + found["keyword"]

    prefix, quote = found["prefix"] or "", found["quote"]
    if "r" in prefix.lower():
        return found[0]

    def repair(escape: re.Match[str]) -> str:
        if escape[0] == "\n":
            return "\n" if len(quote) == 3 else "\\n"

        is_known = int(escape[1], 8) < 0o400 if escape[1] else escape[2] in _KNOWN_ESCAPES
        return escape[0] if is_known else "\\" + escape[0]

    return f"{prefix}{quote}{_ESCAPE.sub(repair, found['body'])}{quote}"
