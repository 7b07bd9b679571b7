"""Where a JSON object ends, in a text that grows."""

from __future__ import annotations

__all__ = ("ObjectScanner",)

from typing import final


@final
class ObjectScanner:
    """Find where a JSON object ends; each character is looked at once."""

    def __init__(self, *, position: int = 0, depth: int = 0) -> None:
        self.position: int = position
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
