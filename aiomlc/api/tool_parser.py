"""Text that may call tools, as it comes, turned into the deltas of OpenAI's chunks."""

from __future__ import annotations

__all__ = ("ToolCallParser",)

import json
import re
import uuid
from collections.abc import Callable
from typing import Any, final

from aiomlc.runtime.tool_format import ToolFormat

Delta = dict[str, Any]

# The order in which models write a call: from here its arguments can be passed on as they come.
_HEADER = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


@final
class ToolCallParser:
    """Split one answer into content and calls, by the marks of a format.

    Nothing that may turn out to be a mark is passed on as content, nor is the whitespace that
    separates a call from content. What stands between marks and is no call is content, with its
    marks: the model did say it. Arguments are passed on as the model writes them.
    """

    def __init__(self, tool_format: ToolFormat) -> None:
        self._format = tool_format
        self._waiting = ""  # What is undecided.
        self._at = 0  # How far into it a call has been looked for.
        self._scanner = _ObjectScanner()
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
        if self._state in (self._begin_answer, self._read_content):
            is_half = is_cut and self._waiting.strip() != ""
            length = _length_of_content(self._waiting, self._format.begin)
            self._say(deltas, length if is_half else len(self._waiting))
        elif self._state == self._read_header or not self._in_body:
            is_dropped = is_cut and (self._is_marked or self._in_body)
            self._say(deltas, 0 if is_dropped else len(self._waiting))

        return deltas

    def _begin_answer(self, deltas: list[Delta]) -> bool:
        start = self._waiting.lstrip()
        if not start:
            return False

        if self._format.bare and start.startswith("{"):
            self._open_body(len(self._waiting) - len(start), is_marked=False)
        else:
            self._state = self._read_content

        return True

    def _read_content(self, deltas: list[Delta]) -> bool:
        mark = self._format.begin
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
        self._state = self._find_object

    def _find_object(self, deltas: list[Delta]) -> bool:
        rest = self._waiting[self._at :].lstrip(self._format.between + " \t\r\n")
        self._at = len(self._waiting) - len(rest)
        end = self._format.end
        if rest.startswith("{"):
            self._scanner = _ObjectScanner(position=self._at)
            self._state = self._read_header
            return True

        if not rest or (end.startswith(rest) and rest != end):
            return False

        if not self._in_body:
            self._give_up(deltas, self._at)
            return True

        self._waiting = self._waiting[self._at :].removeprefix(end)
        self._state = self._read_content
        return True

    def _give_up(self, deltas: list[Delta], length: int) -> None:
        self._say(deltas, length)
        self._state = self._read_content

    def _read_header(self, deltas: list[Delta]) -> bool:
        header = _HEADER.match(self._waiting, self._at)
        if header is not None:
            self._start_call(deltas, header[1])
            self._waiting = self._waiting[header.end() :]
            self._scanner = _ObjectScanner()
            self._state = self._read_arguments
            return True

        end = self._scanner.find_end(self._waiting)
        if end is None:
            return False

        call = _read_call(self._waiting[self._at : end], lenient=self._is_marked)
        if call is None:
            self._give_up(deltas, end)
            return True

        self._start_call(deltas, call[0])
        self._argue(deltas, call[1])
        self._end_call(end)
        return True

    def _read_arguments(self, deltas: list[Delta]) -> bool:
        end = self._scanner.find_end(self._waiting)
        self._argue(deltas, self._waiting[:end])
        if end is None:
            self._waiting = ""
            self._scanner.position = 0
            return False

        self._waiting = self._waiting[end:]
        self._scanner = _ObjectScanner(depth=1)
        self._state = self._read_tail
        return True

    def _read_tail(self, deltas: list[Delta]) -> bool:
        """What follows the arguments within the object, up to its brace or a mark without one."""
        end = self._scanner.find_end(self._waiting)
        mark = self._format.end
        marked = self._waiting.find(mark) if mark else -1
        if marked >= 0 and (end is None or marked < end):
            end = marked

        if end is None:
            return False

        self._end_call(end)
        return True

    def _start_call(self, deltas: list[Delta], name: str) -> None:
        call = {
            "index": self.num_calls,
            "id": self._format.id_prefix + uuid.uuid4().hex[: self._format.id_length],
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
        self._state = self._find_object

    def _say(self, deltas: list[Delta], length: int) -> None:
        text, self._waiting = self._waiting[:length], self._waiting[length:]
        if self._after_call:
            text = text.lstrip()

        if text:
            self._after_call = False
            deltas.append({"content": text})


@final
class _ObjectScanner:
    """Find where a JSON object ends, in a text that grows."""

    def __init__(self, *, position: int = 0, depth: int = 0) -> None:
        self.position = position
        self._depth = depth
        self._in_string = False
        self._is_escaped = False

    def find_end(self, text: str) -> int | None:
        """The position behind the object's last brace; None while that is to come."""
        for position in range(self.position, len(text)):
            if self._closes(text[position]):
                return position + 1

        self.position = len(text)
        return None

    def _closes(self, character: str) -> bool:
        if self._in_string:
            if self._is_escaped:
                self._is_escaped = False
            elif character == "\\":
                self._is_escaped = True
            elif character == '"':
                self._in_string = False
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "]}":
            self._depth -= 1
            return self._depth == 0

        return False


def _length_of_content(text: str, mark: str) -> int:
    """How much of `text` cannot be the whitespace and the beginning of a mark."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            text = text[:-length]
            break

    return len(text.rstrip())


def _read_call(text: str, *, lenient: bool) -> tuple[str, str] | None:
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

    if isinstance(arguments, dict):
        return name, json.dumps(arguments, ensure_ascii=False)

    return (name, arguments) if isinstance(arguments, str) else None
