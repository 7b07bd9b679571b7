"""Files of the cache: regular ones only, sealed JSON, stamps, and locks."""

from __future__ import annotations

__all__ = (
    "Lease",
    "Stamp",
    "create_locked",
    "exclusive_lock",
    "is_at",
    "is_settled",
    "is_transient",
    "lock_alone",
    "open_regular",
    "read_sealed",
    "regular_file",
    "stamp_of",
    "write_atomically",
    "write_sealed",
)

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

import orjson

MAX_SEALED_BYTES: Final = 64 << 20
_SETTLED_NS = 1_000_000_000  # Longer than the resolution of any file system's times.
_POLL_SECONDS = 0.01  # Between attempts to get a lock.
# What the system lacks for a while; it says nothing about a file.
_TRANSIENT = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS),
        *(errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT),
    }
)
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})

Stamp = list[int]  #: Inode, size, and the times of the last modification and change.


@final
class Lease:
    """A shared lock on a file, which keeps processes from removing its entry.

    It ends when the object is deleted, or with the process.
    """

    def __init__(self, path: Path) -> None:
        """Lock a regular file.

        Raises:
            BlockingIOError: If the entry is being removed.
            OSError: If the file cannot be opened or is not regular.
        """
        self.descriptor: Final = open_regular(path)
        self._close = weakref.finalize(self, os.close, self.descriptor)
        try:
            _lock(self.descriptor, fcntl.LOCK_SH)
        except BlockingIOError:
            self._close()
            raise


def is_transient(error: BaseException) -> bool:
    """Return whether the system lacked something for a while, such as a descriptor or memory."""
    return isinstance(error, OSError) and error.errno in _TRANSIENT


def open_regular(path: Path) -> int:
    """Open a regular file for reading; links and special files are refused.

    Raises:
        OSError: If the file cannot be opened or is not regular.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor

    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


@contextmanager
def regular_file(path: Path) -> Iterator[int]:
    """Open a regular file, as `open_regular`, for the duration of the context."""
    descriptor = open_regular(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still the one at a path."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def read_sealed(path: Path) -> Any:  # noqa: ANN401 - JSON.
    """Return the JSON value that `write_sealed` wrote.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file is damaged.
    """
    with regular_file(path) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > MAX_SEALED_BYTES:
            raise ValueError(f"has {size} bytes")

        data = os.pread(descriptor, size + 1, 0)
    try:
        sealed = orjson.loads(data)
        content = sealed["content"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError("is not valid") from error

    if sealed != _seal(content):
        raise ValueError("does not match its checksum")

    return content


def write_sealed(path: Path, content: object) -> None:
    """Write a JSON value with its checksum, atomically.

    Raises:
        OSError: If the file cannot be written.
    """
    write_atomically(path, _dump(_seal(content)))


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that replaces `path` by a rename.

    Raises:
        OSError: If the file cannot be written.
    """
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        written.write_bytes(data)
        written.replace(path)
    except OSError:
        written.unlink(missing_ok=True)
        raise


def stamp_of(status: os.stat_result) -> Stamp:
    """Return what changes when a file is modified or replaced."""
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def is_settled(stamps: Sequence[Stamp]) -> bool:
    """Return whether every later modification will change the stamps.

    One within the resolution of the file system's times would not.
    """
    newest = max((max(stamp[2:]) for stamp in stamps), default=0)
    return time.time_ns() - newest > _SETTLED_NS


def create_locked(path: Path) -> int:
    """Create a file that nobody sees before it is locked; return its descriptor.

    Raises:
        OSError: If the file cannot be created.
    """
    created = path.with_suffix(".new")
    descriptor = os.open(created, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        lock_alone(descriptor)
        created.rename(path)
    except OSError:
        os.close(descriptor)
        raise

    return descriptor


def lock_alone(descriptor: int) -> bool:
    """Lock an open file exclusively; return False if another process uses it."""
    try:
        return _lock(descriptor, fcntl.LOCK_EX)
    except BlockingIOError:
        return False


@contextmanager
def exclusive_lock(path: Path, checkpoint: Callable[[], object]) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is created, for the duration of the context.

    On a file system without locks there is no exclusion.

    Args:
        checkpoint: Called while others hold the lock; it may raise to stop waiting.

    Raises:
        OSError: If the file cannot be created or opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    try:
        while not _try_lock(descriptor):
            checkpoint()
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Return False if another descriptor holds the lock."""
    try:
        _lock(descriptor, fcntl.LOCK_EX)
    except BlockingIOError:
        return False

    return True


def _lock(descriptor: int, operation: int) -> bool:
    """Return whether the file system supports locks."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False

        raise

    return True


def _seal(content: object) -> dict[str, object]:
    return {"content": content, "sha256": hashlib.sha256(_dump(content)).hexdigest()}


def _dump(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
