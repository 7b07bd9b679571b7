"""Text that may begin with thoughts, as it comes, split into those and the answer."""

from __future__ import annotations

__all__ = ("ReasoningParser",)

from typing import final

from aiomlc.runtime.reasoning_format import ReasoningFormat


@final
class ReasoningParser:
    """Split one answer. Nothing that may turn out to be a mark is passed on.

    Thoughts are what stands between the marks at the beginning of an answer; whitespace around
    them is dropped. Marks further on are text.
    """

    def __init__(self, reasoning_format: ReasoningFormat, *, begins_inside: bool) -> None:
        """`begins_inside`: the prompt ended with the first mark."""
        self._format = reasoning_format
        self._waiting = ""  # What is undecided.
        self._has_begun = begins_inside
        self._has_thought = False  # Any text yet: whitespace before it is dropped.
        self.is_thinking: bool = True  #: The thoughts have not ended, or nothing was said yet.

    def share_of_thoughts(self, text: str) -> float:
        """How much of what comes next is thoughts and their marks, 0 to 1, by its characters."""
        if not self.is_thinking:
            return 0.0

        known = self._waiting + text
        if not self._has_begun and not known.lstrip().startswith(self._format.begin):
            return 0.0

        end = known.find(self._format.end)
        if end < 0:
            return 1.0

        num_thoughts = end + len(self._format.end) - len(self._waiting)
        return max(0, num_thoughts) / max(1, len(text))

    def put(self, text: str) -> tuple[str, str]:
        """The thoughts and the text that these words decide; either may be empty."""
        if not self.is_thinking and not self._has_begun:
            return "", text

        self._waiting += text
        if not self._has_begun and self.is_thinking:
            self._begin()

        if not self._has_begun:
            return "", self._take_text()

        return self._think() if self.is_thinking else ("", self._take_text())

    def finish(self) -> tuple[str, str]:
        """What is undecided at the end of the answer."""
        waiting, self._waiting = self._waiting, ""
        if self._has_begun and self.is_thinking:
            return self._thought(waiting.rstrip()), ""

        return "", waiting

    def _begin(self) -> None:
        start = self._waiting.lstrip()
        begin = self._format.begin
        if start.startswith(begin):
            self._has_begun = True
            self._waiting = start.removeprefix(begin)
        elif start and not begin.startswith(start):
            self.is_thinking = False

    def _think(self) -> tuple[str, str]:
        end = self._waiting.find(self._format.end)
        if end >= 0:
            thought = self._thought(self._waiting[:end].rstrip())
            self._waiting = self._waiting[end + len(self._format.end) :]
            self.is_thinking = False
            return thought, self._take_text()

        length = self._decided()
        thought, self._waiting = self._waiting[:length], self._waiting[length:]
        return self._thought(thought), ""

    def _thought(self, text: str) -> str:
        if not self._has_thought:
            text = text.lstrip()
            self._has_thought = text != ""

        return text

    def _take_text(self) -> str:
        if self.is_thinking:
            return ""  # It may be the first mark.

        text, self._waiting = self._waiting, ""
        if self._has_begun:  # Between the thoughts and the answer.
            text = text.lstrip()
            self._has_begun = text == ""

        return text

    def _decided(self) -> int:
        """How much of what waits cannot be the beginning of the second mark, or before it."""
        text, end = self._waiting, self._format.end
        for length in range(min(len(end) - 1, len(text)), 0, -1):
            if end.startswith(text[-length:]):
                text = text[:-length]
                break

        return len(text.rstrip())
