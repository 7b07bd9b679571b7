"""Text that may call tools, as it comes, turned into the deltas of OpenAI's chunks."""

from __future__ import annotations

__all__ = ("ToolCallParser",)

import uuid
from collections.abc import Callable, Mapping
from typing import Any, final

from aiomlc.runtime.output_formats.tool_format import ToolFormat
from aiomlc.runtime.output_formats.tool_syntax.json_object import ObjectScanner
from aiomlc.runtime.output_formats.tool_syntax.syntax import (
    CallContext,
    CallParser,
    FinalizableParser,
    NotACall,
    PartialCall,
    Reading,
)

Delta = dict[str, Any]

_NO_PARAMETERS: Mapping[str, Mapping[str, Any]] = {}


@final
class ToolCallParser:
    """Split one answer into content and calls, by the marks of a format.

    Nothing that may turn out to be a mark is passed on as content, nor is the whitespace that
    separates a call from content. What stands between marks and is no call is content, with its
    marks: the model did say it. Arguments that are written as JSON are passed on as they come.
    """

    def __init__(
        self,
        tool_format: ToolFormat,
        parameters: Mapping[str, Mapping[str, Any]] = _NO_PARAMETERS,
        *,
        has_form: bool = False,
    ) -> None:
        """Begin an answer.

        Args:
            parameters: The schemas of the functions' arguments, by the functions' names.
            has_form: What does not begin with a call is all content, whatever marks are in it.
        """
        self._format = tool_format
        self._parameters = parameters
        self._has_form = has_form
        self._waiting = ""  # What is undecided.
        self._at = 0  # How far into it a call has been looked for.
        self._reader: CallParser
        self._arguments = ObjectScanner()
        self._find_tail_end: Callable[[str], int | None]
        self._state: Callable[[list[Delta]], bool] = self._begin_answer
        self._is_marked = False
        self._in_body = False  # The marks that are open held a call already.
        self._after_call = False  # No content since the last call.
        self.num_calls: int = 0

    def put(self, text: str) -> list[Delta]:
        """The deltas that this text decides."""
        self._waiting += text
        deltas: list[Delta] = []
        while self._state(deltas):
            pass

        return deltas

    def finish(self, *, is_cut: bool) -> list[Delta]:
        """The deltas of what is undecided at the end of the answer.

        Where the token limit cut the answer, half a mark and half a call are dropped.
        """
        deltas: list[Delta] = []
        while (
            self._state == self._read_call
            and not is_cut
            and isinstance(self._reader, FinalizableParser)
        ):
            self._take(deltas, self._reader.read_end(self._waiting))
            while self._state(deltas):
                pass

        if self._state in (self._begin_answer, self._read_content):
            is_half = is_cut and self._waiting.strip() != ""
            length = _length_of_content(self._waiting, self._format.start_marker)
            self._say(deltas, length if is_half else len(self._waiting))
        elif self._state == self._read_call or not self._in_body:
            is_dropped = is_cut and (self._is_marked or self._in_body)
            self._say(deltas, 0 if is_dropped else len(self._waiting))

        return deltas

    def _begin_answer(self, deltas: list[Delta]) -> bool:
        start = self._waiting.lstrip()
        if not start:
            return False

        if self._has_form and not start.startswith(self._format.start_marker):
            if self._format.start_marker.startswith(start):
                return False

            self._state = self._read_all
            return True

        if self._format.marker_optional and start.startswith(self._format.syntax.opens):
            self._open_body(len(self._waiting) - len(start), is_marked=False)
        else:
            self._state = self._read_content

        return True

    def _read_all(self, deltas: list[Delta]) -> bool:
        self._say(deltas, len(self._waiting))
        return False

    def _read_content(self, deltas: list[Delta]) -> bool:
        mark = self._format.start_marker
        found = self._waiting.find(mark)
        if found < 0:
            self._say(deltas, _length_of_content(self._waiting, mark))
            return False

        length = len(self._waiting[:found].rstrip())
        self._say(deltas, length)
        self._open_body(found - length + len(mark), is_marked=True)
        return True

    def _open_body(self, at: int, *, is_marked: bool) -> None:
        self._at = at
        self._is_marked = is_marked
        self._in_body = False
        self._state = self._find_call

    def _find_call(self, deltas: list[Delta]) -> bool:
        syntax, end = self._format.syntax, self._format.end_marker
        rest = self._waiting[self._at :].lstrip(syntax.between + " \t\r\n")
        self._at = len(self._waiting) - len(rest)
        may_call = syntax.repeats or not self._in_body
        marks = (end, syntax.opens) if may_call else (end,)
        if not rest or any(mark.startswith(rest) and mark != rest for mark in marks):
            return False

        is_end = end != "" and rest.startswith(end)
        if may_call and not is_end and rest.startswith(syntax.opens):
            place = CallContext(end, self._is_marked, self._parameters)
            self._reader = syntax.open_call(self._at, place)
            self._state = self._read_call
        elif self._in_body:
            self._waiting = self._waiting[self._at :].removeprefix(end)
            self._state = self._read_content
        else:
            self._give_up(deltas, self._at)

        return True

    def _give_up(self, deltas: list[Delta], length: int) -> None:
        self._say(deltas, length)
        self._state = self._read_content

    def _read_call(self, deltas: list[Delta]) -> bool:
        reading = self._reader.read(self._waiting)
        if reading is None:
            return False

        self._take(deltas, reading)
        return True

    def _take(self, deltas: list[Delta], reading: Reading) -> None:
        if isinstance(reading, NotACall):
            self._give_up(deltas, reading.end)
        elif isinstance(reading, PartialCall):
            self._start_call(deltas, reading.name, reading.call_id)
            self._waiting = self._waiting[reading.end :]
            self._arguments = ObjectScanner()
            self._find_tail_end = reading.find_call_end
            self._state = self._read_arguments
        else:
            for call in reading.calls:
                self._start_call(deltas, call.name)
                self._argue(deltas, call.arguments)

            self._end_call(reading.end)

    def _read_arguments(self, deltas: list[Delta]) -> bool:
        end = self._arguments.find_end(self._waiting)
        self._argue(deltas, self._waiting[:end])
        if end is None:
            self._waiting = ""
            self._arguments.position = 0
            return False

        self._waiting = self._waiting[end:]
        self._state = self._read_tail
        return True

    def _read_tail(self, deltas: list[Delta]) -> bool:
        """What follows the arguments and still belongs to the call."""
        del deltas
        end = self._find_tail_end(self._waiting)
        if end is None:
            return False

        self._end_call(end)
        return True

    def _start_call(self, deltas: list[Delta], name: str, call_id: str | None = None) -> None:
        new_id = self._format.id_prefix + uuid.uuid4().hex[: self._format.id_length]
        call = {
            "index": self.num_calls,
            "id": call_id or new_id,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        deltas.append({"tool_calls": [call]})
        self.num_calls += 1
        self._in_body = True
        self._after_call = True

    def _argue(self, deltas: list[Delta], text: str) -> None:
        if text:
            call = {"index": self.num_calls - 1, "function": {"arguments": text}}
            deltas.append({"tool_calls": [call]})

    def _end_call(self, at: int) -> None:
        self._waiting = self._waiting[at:]
        self._at = 0
        self._state = self._find_call

    def _say(self, deltas: list[Delta], length: int) -> None:
        text, self._waiting = self._waiting[:length], self._waiting[length:]
        if self._after_call:
            text = text.lstrip()

        if text:
            self._after_call = False
            deltas.append({"content": text})


def _length_of_content(text: str, mark: str) -> int:
    """How much of `text` cannot be the whitespace and the beginning of a mark."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            text = text[:-length]
            break

    return len(text.rstrip())
