"""The history of questions, in a file that each question is appended to."""

from __future__ import annotations

__all__ = ("History",)

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import final

from prompt_toolkit.history import History as PromptHistory

_MAX_ENTRIES = 1000
_MAX_BYTES = 1 << 22  #: A file that is longer is shortened when it is loaded.
_logger = logging.getLogger("aiomlc")


@final
class History(PromptHistory):
    """The last questions; a question of several lines is one line of the file.

    Args:
        path: The file, which need not exist. It is readable by its owner only.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._is_writable = True

    def load_history_strings(self) -> Iterable[str]:
        """Return the last questions, the newest first; a file that cannot be read is logged."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _MAX_BYTES))
                lines = file.read().decode(errors="replace").removesuffix("\n").split("\n")
                lines = lines[-_MAX_ENTRIES:]
            if size > _MAX_BYTES:
                self._write(lines, os.O_TRUNC)
        except FileNotFoundError:
            return []
        except OSError as error:
            _logger.warning("cannot read the history file %s: %s", self._path, error.strerror)
            return []

        return [_unescape(line) for line in reversed(lines) if line]

    def store_string(self, string: str) -> None:
        """Append a question to the file, unless it is empty; the first failure is logged."""
        try:
            if string.strip():
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._write([_escape(string)], os.O_APPEND)
        except OSError as error:
            if self._is_writable:
                _logger.warning("cannot write the history file %s: %s", self._path, error.strerror)
            self._is_writable = False

    def _write(self, lines: list[str], flag: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | flag, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write("".join(f"{line}\n" for line in lines).encode(errors="replace"))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _unescape(line: str) -> str:
    parts = line.split("\\\\")
    return "\\".join(part.replace("\\n", "\n").replace("\\r", "\r") for part in parts)
