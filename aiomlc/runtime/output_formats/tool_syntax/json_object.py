"""Detection of the end of a JSON object in streamed text."""

from __future__ import annotations

__all__ = ("ObjectScanner",)

from typing import Final, final

_JSON_CHARACTERS: Final = '{}[]:,"+-. \t\r\n'


@final
class ObjectScanner:
    """Incremental scanner for the end of a JSON object; it visits each character once.

    Args:
        position: The index at which scanning starts.
        depth: The number of objects and arrays that are already open at this index.
        end_marker: A text after the object. The object is broken if its first character, which must
            not occur in JSON but in strings, comes before the last brace; empty if there is none.
    """

    def __init__(self, *, position: int = 0, depth: int = 0, end_marker: str = "") -> None:
        self.position: int = position  #: The index of the next character to scan.
        self._depth = depth
        self._in_string = False
        self._is_escaped = False
        first = end_marker.lstrip()[:1]
        self._foreign = "" if first.isalnum() or first in _JSON_CHARACTERS else first
        self.is_broken: bool = False  #: Whether the object ended before its last brace.

    def find_end(self, text: str) -> int | None:
        """Return the index after the object, or None while the object is open."""
        for position in range(self.position, len(text)):
            if self._closes(text[position]):
                return position if self.is_broken else position + 1

        self.position = len(text)
        return None

    def _closes(self, character: str) -> bool:
        if self._in_string:
            self._read_string(character)
            return False

        if character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "]}":
            self._depth -= 1
            return self._depth == 0
        elif character == self._foreign:
            self.is_broken = True

        return self.is_broken

    def _read_string(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._in_string = False
