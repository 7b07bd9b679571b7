"""Detection of the end of a JSON object in streamed text."""

from __future__ import annotations

__all__ = ("ObjectScanner",)

from typing import final


@final
class ObjectScanner:
    """Incremental scanner for the end of a JSON object; it visits each character once.

    Args:
        position: The index at which scanning starts.
        depth: The number of objects and arrays that are already open at this index.
    """

    def __init__(self, *, position: int = 0, depth: int = 0) -> None:
        self.position: int = position  #: The index of the next character to scan.
        self._depth = depth
        self._in_string = False
        self._is_escaped = False

    def find_end(self, text: str) -> int | None:
        """Return the index after the object's last brace, or None while the object is open."""
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
