"""An incremental parser from model output to content deltas and tool-call deltas."""

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
    ParseStep,
    PartialCall,
)

Delta = dict[str, Any]

_NO_PARAMETERS: Mapping[str, Mapping[str, Any]] = {}


@final
class ToolCallParser:
    """An incremental parser that splits the text of one choice into content and tool calls.

    Text that may be the beginning of a marker is held back, as is whitespace between content and
    a call. Text between markers that is not a valid call is content, including its markers.
    Arguments that the model writes as JSON are emitted as they arrive.
    """

    def __init__(
        self,
        tool_format: ToolFormat,
        parameters: Mapping[str, Mapping[str, Any]] = _NO_PARAMETERS,
        *,
        has_response_format: bool = False,
    ) -> None:
        """Prepare to parse one choice.

        Args:
            has_response_format: Whether the completion is either tool calls or structured output.
                If it does not begin with a call, all of it is content, markers included.
        """
        self._format = tool_format
        self._parameters = parameters
        self._has_response_format = has_response_format
        self._buffer = ""  # Text that is held back.
        self._position = 0  # Where in the buffer the next call is expected.
        self._call_parser: CallParser
        self._arguments = ObjectScanner()
        self._find_call_end: Callable[[str], int | None]
        self._state: Callable[[list[Delta]], bool] = self._detect_start
        self._has_start_marker = False
        self._has_call = False  # A call was emitted since the start marker.
        self._follows_call = False  # No content was emitted since the last call.
        self.num_calls: int = 0
        #: Whether the arguments of a call ended before they were complete.
        self.has_broken_call: bool = False

    def put(self, text: str) -> list[Delta]:
        """Add text; return the deltas that are now certain."""
        self._buffer += text
        deltas: list[Delta] = []
        while self._state(deltas):
            pass

        return deltas

    def finish(self, *, is_truncated: bool) -> list[Delta]:
        """Return the deltas of the held-back text at the end of the choice.

        Args:
            is_truncated: Whether the token limit cut the completion off. If so, incomplete
                markers and incomplete calls are dropped instead of emitted as content.
        """
        deltas: list[Delta] = []
        if self._state == self._read_arguments:
            self.has_broken_call = True

        while (
            self._state == self._parse_call
            and not is_truncated
            and isinstance(self._call_parser, FinalizableParser)
        ):
            self._apply(deltas, self._call_parser.finalize(self._buffer))
            while self._state(deltas):
                pass

        if self._state in (self._detect_start, self._read_content):
            drop_marker = is_truncated and self._buffer.strip() != ""
            length = _content_length(self._buffer, self._format.start_marker)
            self._emit_content(deltas, length if drop_marker else len(self._buffer))
        elif self._state == self._parse_call or not self._has_call:
            drop_call = is_truncated and (self._has_start_marker or self._has_call)
            self._emit_content(deltas, 0 if drop_call else len(self._buffer))

        return deltas

    # The states. Each returns whether the next state may continue without more text.

    def _detect_start(self, deltas: list[Delta]) -> bool:
        start = self._buffer.lstrip()
        if not start:
            return False

        if self._has_response_format and not start.startswith(self._format.start_marker):
            if self._format.start_marker.startswith(start):
                return False

            self._state = self._read_only_content
            return True

        if self._format.marker_optional and start.startswith(self._format.syntax.call_prefix):
            self._expect_calls(len(self._buffer) - len(start), has_start_marker=False)
        else:
            self._state = self._read_content

        return True

    def _read_only_content(self, deltas: list[Delta]) -> bool:
        self._emit_content(deltas, len(self._buffer))
        return False

    def _read_content(self, deltas: list[Delta]) -> bool:
        marker = self._format.start_marker
        marker_start = self._buffer.find(marker)
        if marker_start < 0:
            self._emit_content(deltas, _content_length(self._buffer, marker))
            return False

        length = len(self._buffer[:marker_start].rstrip())
        self._emit_content(deltas, length)
        self._expect_calls(marker_start - length + len(marker), has_start_marker=True)
        return True

    def _find_call(self, deltas: list[Delta]) -> bool:
        syntax, end_marker = self._format.syntax, self._format.end_marker
        delimiters = syntax.delimiters + " \t\r\n"
        remaining = self._buffer[self._position :].lstrip(delimiters)
        if not self._has_call:
            opening = self._format.opening
            if remaining and opening.startswith(remaining):
                return False

            remaining = remaining.removeprefix(opening).lstrip(delimiters)

        self._position = len(self._buffer) - len(remaining)
        may_call = syntax.allows_multiple or not self._has_call
        prefixes = (end_marker, syntax.call_prefix) if may_call else (end_marker,)
        if not remaining or any(
            prefix.startswith(remaining) and prefix != remaining for prefix in prefixes
        ):
            return False

        is_end = end_marker != "" and remaining.startswith(end_marker)
        if may_call and not is_end and remaining.startswith(syntax.call_prefix):
            context = CallContext(end_marker, self._has_start_marker, self._parameters)
            self._call_parser = syntax.create_parser(self._position, context)
            self._state = self._parse_call
        elif self._has_call:
            self._buffer = self._buffer[self._position :].removeprefix(end_marker)
            self._state = self._read_content
        else:
            self._reject_call(deltas, self._position)

        return True

    def _parse_call(self, deltas: list[Delta]) -> bool:
        step = self._call_parser.parse(self._buffer)
        if step is None:
            return False

        self._apply(deltas, step)
        return True

    def _read_arguments(self, deltas: list[Delta]) -> bool:
        end = self._arguments.find_end(self._buffer)
        self._emit_arguments(deltas, self._buffer[:end])
        if end is None:
            self._buffer = ""
            self._arguments.position = 0
            return False

        self.has_broken_call |= self._arguments.is_broken
        self._buffer = self._buffer[end:]
        self._state = self._read_call_end
        return True

    def _read_call_end(self, deltas: list[Delta]) -> bool:
        """Skip the text of a call after its arguments."""
        del deltas
        end = self._find_call_end(self._buffer)
        if end is None:
            return False

        self._end_call(end)
        return True

    # The transitions.

    def _expect_calls(self, position: int, *, has_start_marker: bool) -> None:
        self._position = position
        self._has_start_marker = has_start_marker
        self._has_call = False
        self._state = self._find_call

    def _apply(self, deltas: list[Delta], step: ParseStep) -> None:
        if isinstance(step, NotACall):
            self._reject_call(deltas, step.end)
        elif isinstance(step, PartialCall):
            self._emit_call(deltas, step.name, step.call_id)
            self._buffer = self._buffer[step.end :]
            self._arguments = ObjectScanner(end_marker=self._format.end_marker)
            self._find_call_end = step.find_call_end
            self._state = self._read_arguments
        else:
            for call in step.calls:
                self._emit_call(deltas, call.name)
                self._emit_arguments(deltas, call.arguments)

            self._end_call(step.end)

    def _reject_call(self, deltas: list[Delta], length: int) -> None:
        self._emit_content(deltas, length)
        self._state = self._read_content

    def _end_call(self, end: int) -> None:
        self._has_call = True  # Also if the call stands for an answer and was not emitted.
        self._buffer = self._buffer[end:]
        self._position = 0
        self._state = self._find_call

    # The deltas.

    def _emit_call(self, deltas: list[Delta], name: str, call_id: str | None = None) -> None:
        new_id = self._format.id_prefix + uuid.uuid4().hex[: self._format.id_length]
        call = {
            "index": self.num_calls,
            "id": call_id or new_id,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        deltas.append({"tool_calls": [call]})
        self.num_calls += 1
        self._has_call = True
        self._follows_call = True

    def _emit_arguments(self, deltas: list[Delta], text: str) -> None:
        if text:
            call = {"index": self.num_calls - 1, "function": {"arguments": text}}
            deltas.append({"tool_calls": [call]})

    def _emit_content(self, deltas: list[Delta], length: int) -> None:
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        if self._follows_call:
            text = text.lstrip()

        if text:
            self._follows_call = False
            deltas.append({"content": text})


def _content_length(text: str, marker: str) -> int:
    """Return the length of `text` without trailing whitespace and a possible marker beginning."""
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if marker.startswith(text[-length:]):
            text = text[:-length]
            break

    return len(text.rstrip())
