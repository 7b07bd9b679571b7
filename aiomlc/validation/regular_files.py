"""The opening of regular files. Others, such as a FIFO, could block or never end."""

from __future__ import annotations

__all__ = ("open_regular_file", "require_regular")

import io
import os
import stat
from pathlib import Path
from typing import Final

# A FIFO is opened without waiting for its writer, and a terminal does not become ours.
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FILE_TYPES: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_regular_file(path: Path, flags: int = 0) -> io.BufferedReader:
    """Open a regular file for reading, without blocking.

    Args:
        path: The file.
        flags: More flags, such as `os.O_NOFOLLOW`.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is not a regular file, or its name has a null character.
    """
    descriptor = os.open(path, _FLAGS | flags)
    try:
        require_regular(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def require_regular(status: os.stat_result) -> None:
    """Require that a file is regular.

    Raises:
        ValueError: If it is another one; the message says which kind.
    """
    if not stat.S_ISREG(status.st_mode):
        kinds = (name for is_kind, name in _FILE_TYPES if is_kind(status.st_mode))
        raise ValueError(f"must be a regular file, got {next(kinds, '?')}")
