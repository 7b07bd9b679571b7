"""A line of a terminal that says what is being done, without escape sequences."""

from __future__ import annotations

__all__ = ("StatusLine", "can_move_cursor")

import os
from typing import Self, TextIO, final


@final
class StatusLine:
    """The last line of a terminal, which each text replaces; leaving its scope erases it.

    Nothing is written to a file, a pipe, or a terminal that cannot move its cursor.

    Args:
        output: The stream for the line.
    """

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._width = 0  # Of the text that is shown.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.erase()

    def show(self, text: str) -> None:
        """Write a text over the previous one, cut off at the width of the terminal."""
        if not can_move_cursor(self._output):
            return

        text = text[: self._columns() - 1]
        self._output.write(f"\r{text:<{self._width}}")
        self._output.flush()
        self._width = len(text)

    def erase(self) -> None:
        """Remove the text, if there is one."""
        if self._width:
            self._output.write(f"\r{'':{self._width}}\r")
            self._output.flush()
            self._width = 0

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._output.fileno()).columns or 80
        except (OSError, ValueError):
            return 80


def can_move_cursor(output: TextIO) -> bool:
    """Return whether a stream is a terminal that understands a carriage return."""
    return output.isatty() and os.environ.get("TERM", "dumb") != "dumb"
