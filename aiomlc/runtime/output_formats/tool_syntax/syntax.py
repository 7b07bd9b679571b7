"""What a way to write calls of tools offers to the parser and to the grammar."""

from __future__ import annotations

__all__ = (
    "Call",
    "CallContext",
    "CallParser",
    "CompleteCalls",
    "FinalizableParser",
    "HistoryCall",
    "NotACall",
    "PartialCall",
    "Reading",
    "ToolSchema",
    "ToolSyntax",
    "write_arguments",
)

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable


class ToolSchema(NamedTuple):
    """A function, and the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]


class Call(NamedTuple):
    """A call that is complete."""

    name: str
    arguments: str  #: JSON.


class PartialCall(NamedTuple):
    """A call whose arguments, a JSON object, begin at `end`."""

    name: str
    end: int
    find_call_end: Callable[[str], int | None]  #: Where ends what follows them, as it grows.
    call_id: str | None = None  #: None: the model gave it none.


class HistoryCall(NamedTuple):
    """A call of a history."""

    name: str
    arguments: Mapping[str, Any]


class CompleteCalls(NamedTuple):
    """Calls that end at `end`."""

    calls: tuple[Call, ...]
    end: int


class NotACall(NamedTuple):
    """What stands before `end` is no call."""

    end: int


Reading = PartialCall | CompleteCalls | NotACall


class CallContext(NamedTuple):
    """Where a call stands."""

    end_mark: str  #: Of the format; may be empty.
    is_marked: bool  #: Behind the format's first mark.
    parameters: Mapping[str, Mapping[str, Any]]  #: The schema of each function's arguments.


class CallParser(Protocol):
    """Reads one call, or one list of them."""

    def read(self, text: str) -> Reading | None:
        """What stands there; None while that is open. `text` is that of the last time and more."""


@runtime_checkable
class FinalizableParser(CallParser, Protocol):
    """Reads what the end of the answer may close, too."""

    def read_end(self, text: str) -> Reading:
        """What stands there, now that nothing more comes."""


class ToolSyntax(Protocol):
    """A way to write calls between the marks of a format."""

    @property
    def opens(self) -> str:
        """What a call begins with; empty: with its name."""

    @property
    def between(self) -> str:
        """Characters, besides whitespace, that may stand around calls."""

    @property
    def repeats(self) -> bool:
        """Several calls may stand between the same marks, and are read one by one."""

    @property
    def marks(self) -> tuple[str, ...]:
        """Text within calls that a vocabulary may count among its special tokens."""

    def open_call(self, at: int, place: CallContext) -> CallParser:
        """What reads the call that begins at `at`."""

    def rules(
        self, tools: Sequence[ToolSchema], write: Callable[[str], str], *, may_repeat: bool
    ) -> list[str]:
        """Rules of Lark, `body` among them: what stands between the marks.

        Args:
            write: Fixed text as a part of a rule.

        Raises:
            BadRequestError: they cannot be told by a grammar.
        """

    def write(self, calls: Sequence[HistoryCall]) -> list[str]:
        """The calls as a model writes them; each text stands between marks of its own."""


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON.

    Raises:
        ValueError: a number is not finite.
        TypeError: a value is none of JSON's.
    """
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # Half of a surrogate pair, which has no UTF-8.
        return json.dumps(arguments, allow_nan=False)

    return text
