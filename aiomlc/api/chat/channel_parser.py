"""An incremental parser from messages in channels to reasoning, content and tool calls."""

from __future__ import annotations

__all__ = ("ChannelParser",)

import re
import uuid
from collections import deque
from typing import Any, Final, Literal, final

from aiomlc.api.chat.choice_parser import ChoiceDelta
from aiomlc.runtime.engine.stream import Delta
from aiomlc.runtime.output_formats.harmony import ChannelFormat
from aiomlc.validation.json_values import read_json

_Kind = Literal["reasoning", "content", "call"]
_TEXT_FIELDS: Final = ("reasoning_content", "content")
_ID_LENGTH: Final = 24


@final
class ChannelParser:
    """An incremental parser of the text of one choice.

    The text of analysis is reasoning, that of messages to a function is the arguments of a call,
    and all other text is content; messages of the same kind are separated by a line break. Text
    that may be the beginning of a marker is held back. Text that does not begin like a message is
    content.
    """

    def __init__(
        self,
        channels: ChannelFormat,
        opening: str,
        *,
        offers_tools: bool,
        separates_reasoning: bool,
        has_response_format: bool,
    ) -> None:
        """Prepare to parse one choice.

        Args:
            channels: The markers.
            opening: What the prompt has of the first message; see `ChannelFormat.open_message`.
            offers_tools: Whether messages to a function are calls.
            separates_reasoning: Whether reasoning is not content. Where it is, content has markers.
            has_response_format: Whether the answer is structured. It ends with the completion then,
                and all of its text is content.
        """
        self._channels = channels
        self._offers_tools = offers_tools
        self._separates_reasoning = separates_reasoning
        self._has_response_format = has_response_format
        self._ends: tuple[str, ...] = (
            *(channels.end, *channels.stops),
            *(channels.start, channels.channel),
        )
        self._end = re.compile("|".join(map(re.escape, self._ends)))
        self._kind: _Kind | None = None  # Of the message; None in its header.
        header, marker, text = opening.partition(channels.message)
        if marker:
            self._kind = self._kind_of(header)
        self._buffer = "" if marker else header  # Text that is held back.
        self._has_text = text != ""  # Some text of the message was emitted.
        self._written: set[str] = set()  # The fields that have text.
        self._arguments: list[str] = []  # Of the current call.
        self._num_calls = 0
        self._has_broken_call = False
        self._tokens = _TokenCount()
        self._tokens.add(len(self._buffer), 0)
        self._reasoning_tokens = 0.0

    @property
    def has_calls(self) -> bool:
        return self._num_calls > 0 and not self._has_broken_call

    @property
    def reasoning_tokens(self) -> int | None:
        return round(self._reasoning_tokens) if self._separates_reasoning else None

    def parse(self, delta: Delta) -> list[ChoiceDelta]:
        self._buffer += delta.text
        self._tokens.add(len(delta.text), len(delta.token_ids))
        deltas: list[ChoiceDelta] = []
        while self._read_header(deltas) if self._kind is None else self._read_text(deltas):
            pass

        if delta.finish_reason is not None:
            self._finish(deltas, is_truncated=delta.finish_reason == "length")

        return _joined(deltas)

    # The states. Each returns whether the next state may continue without more text.

    def _read_header(self, deltas: list[ChoiceDelta]) -> bool:
        start = self._buffer.lstrip()
        if not start:
            return False

        if not any(start.startswith(text) or text.startswith(start) for text in self._beginnings):
            self._kind = "content"
            return True

        header, marker, _ = self._buffer.partition(self._channels.message)
        if not marker:
            return False

        self._kind = self._kind_of(header)
        self._has_text = False
        text = self._take(len(header) + len(marker))
        if self._kind == "call":
            self._begin_call(deltas, self._channels.read_header(header).function or "")
        elif not self._separates_reasoning:
            self._emit(deltas, text)
        return True

    def _read_text(self, deltas: list[ChoiceDelta]) -> bool:
        if self._has_response_format and self._kind == "content":
            self._emit(deltas, self._take(len(self._buffer)))
            return False

        end = self._end.search(self._buffer)
        if end is None:
            self._emit(deltas, self._take(self._decided_length()))
            return False

        self._emit(deltas, self._take(end.start()))
        if end[0] not in (self._channels.start, self._channels.channel):  # Of the next header.
            marker = self._take(len(end[0]))
            if self._kind != "call" and not self._separates_reasoning:
                self._emit(deltas, marker)
        self._end_message(deltas)
        return True

    def _finish(self, deltas: list[ChoiceDelta], *, is_truncated: bool) -> None:
        if self._kind is None:
            start = self._buffer.lstrip()
            is_text = start not in self._beginnings and any(
                text.startswith(start) for text in self._beginnings
            )
            if not self._separates_reasoning or (is_text and not is_truncated):
                self._kind = "content"
                self._emit(deltas, self._take(len(self._buffer)))
            return

        self._emit(deltas, self._take(len(self._buffer)))
        self._has_broken_call |= is_truncated and self._kind == "call"
        self._end_message(deltas)

    # The transitions.

    @property
    def _beginnings(self) -> tuple[str, ...]:
        channels = self._channels
        return channels.start, channels.channel, channels.message, "to="

    def _kind_of(self, header: str) -> _Kind:
        read = self._channels.read_header(header)
        if read.function is not None and self._offers_tools:
            return "call"

        return "reasoning" if read.is_reasoning else "content"

    def _end_message(self, deltas: list[ChoiceDelta]) -> None:
        if self._kind == "call":
            arguments = "".join(self._arguments)
            if not arguments.strip():
                self._emit(deltas, "{}")
            elif not _is_json(arguments):
                self._has_broken_call = True
        self._kind = None

    def _take(self, length: int) -> str:
        """Return the next text of the message, and remove it from the buffer."""
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        tokens = self._tokens.take(length)
        if self._kind == "reasoning":
            self._reasoning_tokens += tokens
        return text

    def _decided_length(self) -> int:
        """Return the length of the buffered text before a possible marker."""
        text = self._buffer
        longest = max(map(len, self._ends)) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(end.startswith(text[-length:]) for end in self._ends):
                return len(text) - length

        return len(text)

    # The deltas.

    def _begin_call(self, deltas: list[ChoiceDelta], name: str) -> None:
        self._arguments = []
        call = {
            "index": self._num_calls,
            "id": f"call_{uuid.uuid4().hex[:_ID_LENGTH]}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        deltas.append({"tool_calls": [call]})
        self._num_calls += 1

    def _emit(self, deltas: list[ChoiceDelta], text: str) -> None:
        if not text:
            return

        if self._kind == "call":
            self._arguments.append(text)
            call = {"index": self._num_calls - 1, "function": {"arguments": text}}
            deltas.append({"tool_calls": [call]})
            return

        is_reasoning = self._kind == "reasoning" and self._separates_reasoning
        field = "reasoning_content" if is_reasoning else "content"
        if self._separates_reasoning and not self._has_text and field in self._written:
            text = f"\n{text}"
        self._has_text = True
        self._written.add(field)
        deltas.append({field: text})


@final
class _TokenCount:
    """The tokens of a text that is read in other pieces than it arrives in."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, float]] = deque()  # Characters, and their tokens.

    def add(self, characters: int, tokens: float) -> None:
        self._pieces.append((characters, tokens))

    def take(self, characters: int) -> float:
        """Return the tokens of the next characters; of a part of a piece, its share."""
        total = 0.0
        while self._pieces and self._pieces[0][0] <= characters:
            length, tokens = self._pieces.popleft()
            characters -= length
            total += tokens
        if characters > 0 and self._pieces:
            length, tokens = self._pieces.popleft()
            share = tokens * characters / length
            total += share
            self._pieces.appendleft((length - characters, tokens - share))
        return total


def _joined(deltas: list[ChoiceDelta]) -> list[ChoiceDelta]:
    """Return the deltas, of which those with text of the same field are joined."""
    joined: list[dict[str, Any]] = []
    for delta in deltas:
        (field,) = delta
        if field in _TEXT_FIELDS and joined and field in joined[-1]:
            joined[-1][field] += delta[field]
        else:
            joined.append(delta)
    return joined


def _is_json(text: str) -> bool:
    try:
        read_json(text)
    except ValueError:
        return False

    return True
