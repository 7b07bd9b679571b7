"""The output of a batch: answers are appended, and found again by the next run."""

from __future__ import annotations

__all__ = ("Answers", "OutputFile", "digest")

import errno
import fcntl
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Self, final

import orjson

from aiomlc.batch.lines import DUPLICATE, is_torn_line
from aiomlc.errors import BadRequestError
from aiomlc.validation.json_values import safe_repr

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_MODE = 0o666  # As `open` creates files.
_BUSY = (errno.EWOULDBLOCK, errno.EACCES)


def digest(custom_id: str) -> bytes:
    """Return 16 bytes that stand for an id, so that many ids take little memory."""
    return hashlib.blake2b(custom_id.encode(), digest_size=16).digest()


@final
class Answers:
    """The requests that the lines of an output file answer."""

    def __init__(self) -> None:
        self.ids: set[bytes] = set()  #: The digests of the answered requests.
        self.duplicates: Counter[bytes] = Counter()  #: The errors of repeated ids, by digest.
        self.num_failed: int = 0  #: Lines with an error, or with another status than 200.

    def __len__(self) -> int:
        return len(self.ids) + self.duplicates.total()

    def add(self, line: bytes) -> None:
        """Add a line.

        Raises:
            ValueError: If it is not a line of a batch's output.
        """
        fields = orjson.loads(line)
        if not isinstance(fields, dict) or not {"response", "error"} <= fields.keys():
            raise ValueError("it has no response and no error")

        custom_id, response, error = fields.get("custom_id"), fields["response"], fields["error"]
        if not isinstance(custom_id, str):
            raise ValueError(f"custom_id must be a string, got {safe_repr(custom_id)}")

        is_ok = isinstance(response, dict) and response.get("status_code") == 200
        self.num_failed += not is_ok
        if isinstance(error, dict) and error.get("code") == DUPLICATE:
            self.duplicates[digest(custom_id)] += 1
        else:
            self.ids.add(digest(custom_id))


@final
class OutputFile:
    """A file of complete lines, which only this process writes.

    Each line is written by one call of `write`, at the end of the file, and is in the hands of the
    operating system when `append` returns: a process that is killed loses nothing. `sync` makes
    what was appended survive a failure of the computer.
    """

    def __init__(self, path: Path) -> None:
        """Open or create a file, and lock it.

        Raises:
            BadRequestError: If it is not a regular file, or another process writes it.
            OSError: If it cannot be opened or locked.
        """
        self._path = path
        self._is_closed = False
        self._using = Lock()  # Held while the descriptor is used in another thread, or closed.
        self._descriptor = os.open(path, _FLAGS, _MODE)
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise BadRequestError(f"{path}: the output must be a regular file", param="output")

            self._lock()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _BUSY:
                raise

            raise BadRequestError(
                f"{self._path}: another process is writing this file; wait until it has ended, or "
                "choose another output",
                param="output",
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._using:
            self._is_closed = True
            os.close(self._descriptor)  # Which also releases the lock.

    def is_same_file(self, path: Path) -> bool:
        """Return whether a path leads to this file."""
        return os.path.samestat(os.fstat(self._descriptor), path.stat())

    def recover(self, is_cancelled: Callable[[], bool]) -> Answers:
        """Return what the file answers, and cut off a last line without an end.

        It may run in a thread that has been abandoned: closing the file waits for it.

        Raises:
            BadRequestError: If the file is not the output of a batch; it is left unchanged.
            OSError: If the file cannot be read or cut off.
        """
        answers = Answers()
        with self._using:
            if not self._is_closed:
                self._read(answers, is_cancelled)
        return answers

    def _read(self, answers: Answers, is_cancelled: Callable[[], bool]) -> None:
        end = 0
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(0)
            for number, line in enumerate(file, start=1):
                if is_cancelled():
                    return

                if not line.endswith(b"\n"):
                    self._cut_off(line, number, end)
                    return

                self._add(answers, line, number)
                end += len(line)

    def _add(self, answers: Answers, line: bytes, number: int) -> None:
        try:
            answers.add(line)
        except ValueError as error:
            raise self._foreign(number, str(error)) from None

    def _cut_off(self, text: bytes, number: int, end: int) -> None:
        if not is_torn_line(text):
            raise self._foreign(number, "it is not the beginning of an answer")

        os.ftruncate(self._descriptor, end)

    def _foreign(self, number: int, reason: str) -> BadRequestError:
        return BadRequestError(
            f"{self._path} line {number} is not an answer of a batch: {reason}; choose another "
            "output, or remove the file",
            param="output",
        )

    def append(self, line: bytes) -> None:
        """Append a line, or nothing of it.

        Raises:
            OSError: If it cannot be written.
        """
        written = os.write(self._descriptor, line)
        while written < len(line):  # The disk is full: the next call says so.
            try:
                written += os.write(self._descriptor, line[written:])
            except OSError:
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
                raise

    def sync(self) -> None:
        """Wait until what was appended is on the disk.

        Raises:
            OSError: If it cannot be written to the disk.
        """
        os.fdatasync(self._descriptor)
