"""The interface between a tool-call syntax, the streaming parser and the grammar builder."""

from __future__ import annotations

__all__ = (
    "Call",
    "CallContext",
    "CallParser",
    "CompleteCalls",
    "FinalizableParser",
    "HistoryCall",
    "NotACall",
    "ParseStep",
    "PartialCall",
    "ToolSchema",
    "ToolSyntax",
    "dump_arguments",
    "object_rule",
)

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable


class ToolSchema(NamedTuple):
    """The name of a function and the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]


class Call(NamedTuple):
    """A complete tool call."""

    name: str
    arguments: str  #: JSON.


class PartialCall(NamedTuple):
    """A call whose arguments can be streamed: a JSON object that starts at index `end`."""

    name: str
    end: int
    #: Returns the index where the call ends in the text after the arguments, or None while the
    #: call is incomplete.
    find_call_end: Callable[[str], int | None]
    call_id: str | None = None  #: None if the model did not generate an id.


class HistoryCall(NamedTuple):
    """A tool call in the chat history."""

    name: str
    arguments: Mapping[str, Any]


class CompleteCalls(NamedTuple):
    """Complete calls; the text after them starts at index `end`."""

    calls: tuple[Call, ...]
    end: int


class NotACall(NamedTuple):
    """The text before index `end` is not a call."""

    end: int


ParseStep = PartialCall | CompleteCalls | NotACall


class CallContext(NamedTuple):
    """The markers around a call and the functions that it may name."""

    end_marker: str  #: The end marker of the tool format; may be empty.
    has_start_marker: bool  #: Whether the start marker of the tool format precedes the call.
    parameters: Mapping[str, Mapping[str, Any]]  #: JSON schemas of arguments by function name.


class CallParser(Protocol):
    """Incremental parser of one call, or of one list of calls."""

    def parse(self, text: str) -> ParseStep | None:
        """Parse the text so far; return None while the result is undecided.

        `text` starts with the text of the previous invocation.
        """
        ...


@runtime_checkable
class FinalizableParser(CallParser, Protocol):
    """A parser of calls that the end of the completion may terminate."""

    def finalize(self, text: str) -> ParseStep:
        """Parse the text at the end of the completion."""
        ...


class ToolSyntax(ABC):
    """The syntax of the calls between the markers of a tool format."""

    __slots__ = ()

    @property
    def call_prefix(self) -> str:
        """The text that starts every call; empty if a call starts with the function's name."""
        return ""

    @property
    def delimiters(self) -> str:
        """Characters that are skipped around calls, in addition to whitespace."""
        return ""

    @property
    def allows_multiple(self) -> bool:
        """Whether several calls, parsed one by one, may share a pair of markers."""
        return False

    @property
    def markers(self) -> tuple[str, ...]:
        """Strings within calls that may be special tokens of a vocabulary."""
        return ()

    @abstractmethod
    def create_parser(self, position: int, context: CallContext) -> CallParser:
        """Return a parser of the call that starts at index `position` of the text."""

    @abstractmethod
    def grammar_rules(
        self, tools: Sequence[ToolSchema], literal: Callable[[str], str], *, allow_parallel: bool
    ) -> list[str]:
        """Return Lark rules, among them `body`: the text between the markers.

        Args:
            tools: The functions that may be called.
            literal: Converts fixed text to a Lark expression.
            allow_parallel: Whether there may be more than one call.

        Raises:
            BadRequestError: If the syntax or a schema cannot be expressed as a grammar.
        """

    @abstractmethod
    def render(self, calls: Sequence[HistoryCall]) -> list[str]:
        """Return calls as the model generates them, one string for each pair of markers."""


def object_rule(tools: Sequence[ToolSchema]) -> str:
    """Return the Lark rule `object`: a call of any function, by its rule `object_{index}`."""
    return "object: " + " | ".join(f"object_{number}" for number in range(len(tools)))


def dump_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments as JSON.

    Raises:
        ValueError: If a number is not finite.
        TypeError: If a value has no JSON form.
    """
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # A lone surrogate, which UTF-8 cannot encode.
        return json.dumps(arguments, allow_nan=False)

    return text
