"""The terminal, or the files, that a chat writes to."""

from __future__ import annotations

__all__ = ("Screen",)

import os
from typing import TextIO, final

from aiomlc.cli.terminal.status_line import StatusLine
from aiomlc.cli.terminal.word_wrap import WordWrapper

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


@final
class Screen:
    """Writes answers to one stream, and everything else to another one.

    Answers are wrapped in a terminal only, so that a pipe gets them as they are. The reasoning of
    a model and figures are for people: they appear in a terminal only.

    Args:
        output: The stream for answers.
        notes: The stream for everything else.
    """

    def __init__(self, output: TextIO, notes: TextIO) -> None:
        self._output = output
        self._notes = notes
        self._is_terminal = output.isatty()
        self._wrapper = WordWrapper(self._columns)
        self._is_reasoning = False
        self._at_line_start = True
        self._status = StatusLine(notes)

    def write_reasoning(self, text: str) -> None:
        """Write a part of the reasoning that precedes an answer."""
        if not self._is_terminal:
            return

        if not self._is_reasoning:
            self._is_reasoning = True
            self._write("" if _has_style(self._output) else "Reasoning: ")
        self._write(_dim(self._wrapper.feed(text), self._output))

    def write_answer(self, text: str) -> None:
        """Write a part of an answer."""
        if self._is_reasoning:
            self._end_reasoning()
        self._write(self._wrapper.feed(text) if self._is_terminal else text)
        self._at_line_start = text.endswith("\n")

    def end_answer(self) -> None:
        """Write what is left of an answer, and end its last line."""
        self._status.erase()
        if self._is_reasoning:
            self._end_reasoning()
        elif self._is_terminal:
            self._write(self._wrapper.flush())
        if not self._at_line_start:
            self.end_line()
        self._at_line_start = True

    def end_line(self) -> None:
        """Begin a new line of answers."""
        self._write("\n")
        self._wrapper = WordWrapper(self._columns)

    def note(self, text: str) -> None:
        """Write a remark that only matters to people, such as figures.

        It is left out if answers go elsewhere, to `tee` for example, which may write them later.
        """
        if self._is_terminal and self._notes.isatty():
            self._status.erase()
            self._notes.write(_dim(self._wrap(text), self._notes) + "\n")
            self._notes.flush()

    def show_status(self, text: str) -> None:
        """Write a line that the next text replaces, if the terminal can move its cursor."""
        if self._is_terminal:
            self._status.show(text)

    def show(self, text: str) -> None:
        """Write the result of a command, or an error."""
        self._status.erase()
        self._notes.write(f"{self._wrap(text)}\n")
        self._notes.flush()

    def _end_reasoning(self) -> None:
        self._is_reasoning = False
        self._write(_dim(self._wrapper.flush(), self._output) + "\n\n")
        self._wrapper = WordWrapper(self._columns)

    def _write(self, text: str) -> None:
        # May block the event loop, which serves only this chat.
        self._status.erase()
        self._output.write(text)
        self._output.flush()

    def _wrap(self, text: str) -> str:
        """Return a remark with line breaks between words if it goes to a terminal."""
        if not self._notes.isatty():
            return text

        wrapper = WordWrapper(lambda: _width(self._notes))
        return wrapper.feed(text) + wrapper.flush()

    def _columns(self) -> int:
        return _width(self._output)


def _width(stream: TextIO) -> int:
    """Return the width of the terminal, which may be resized; 0 if it is unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def _dim(text: str, stream: TextIO) -> str:
    return f"{_DIM}{text}{_PLAIN}" if text and _has_style(stream) else text


def _has_style(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False

    return stream.isatty()
