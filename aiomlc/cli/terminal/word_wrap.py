"""Word wrap of text that arrives in pieces."""

from __future__ import annotations

__all__ = ("WordWrapper",)

import unicodedata
from collections.abc import Callable
from typing import final

_TAB = 8
_FENCE = "```"


@final
class WordWrapper:
    """Breaks lines between words, at the width of a terminal.

    A word is returned once it is complete. Lines of fenced code are not broken, so that they can
    be copied. Control characters, which a terminal would obey, are replaced.

    Args:
        get_width: Returns the current number of columns; 0 disables the wrapping.
    """

    def __init__(self, get_width: Callable[[], int]) -> None:
        self._get_width = get_width
        self._column = 0
        self._spaces = 0  # Pending, before the word.
        self._word = ""
        self._is_long = False  # The word was too long for a line, and began to be returned.
        self._line = ""
        self._is_code = False

    def feed(self, text: str) -> str:
        """Return the text that can be written now."""
        return "".join(map(self._feed, text))

    def flush(self) -> str:
        """Return the last word."""
        return self._take_word()

    def _feed(self, character: str) -> str:
        if character == "\n":
            return self._end_line()

        self._line += character
        return self._add_space(character) if character in " \t" else self._add(character)

    def _end_line(self) -> str:
        written = self._take_word() + "\n"
        if self._line.lstrip().startswith(_FENCE):
            self._is_code = not self._is_code
        self._line = ""
        self._column = self._spaces = 0
        return written

    def _add_space(self, character: str) -> str:
        written = self._take_word()
        is_tab = character == "\t"
        self._spaces += _TAB - (self._column + self._spaces) % _TAB if is_tab else 1
        return written

    def _add(self, character: str) -> str:
        if unicodedata.category(character) == "Cc":
            character = "\ufffd"
        width = self._get_width()
        if _columns(character) == 2:  # East Asian text may be broken anywhere.
            written = self._take_word()
            self._word = character
            return written + self._take_word()

        self._word += character
        if self._is_code or self._is_long or 0 < width <= _columns(self._word):
            written = self._take_word()
            self._is_long = True
            return written

        return ""

    def _take_word(self) -> str:
        """Return the word after its spaces, or on a new line if it does not fit."""
        is_continued, self._is_long = self._is_long, False
        if not self._word:
            return ""

        word, self._word = self._word, ""
        spaces, self._spaces = self._spaces, 0
        width, end = self._get_width(), self._column + spaces + _columns(word)
        is_unbroken = self._is_code or is_continued or width <= 0
        if is_unbroken or end <= width or self._column == 0:
            self._column = end % width if end > width > 0 else end
            return " " * spaces + word

        self._column = _columns(word)
        return f"\n{word}"


def _columns(text: str) -> int:
    return sum(map(_character_columns, text))


def _character_columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0

    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
