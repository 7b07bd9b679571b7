"""The directory of the cache: `$AIOMLC_HOME`, the user's cache directory, or a temporary one."""

from __future__ import annotations

__all__ = ("cache_error", "cache_home", "cache_homes")

import errno
import functools
import logging
import os
import stat
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

from aiomlc.cache.files import is_transient
from aiomlc.errors import BadRequestError, ModelLoadError

_VARIABLE = "AIOMLC_HOME"
_FULL = frozenset(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))

_logger = logging.getLogger("aiomlc")


def cache_home() -> Path:
    """Return the directory that the cache is written to.

    Raises:
        BadRequestError: If `AIOMLC_HOME` names the home directory of an unknown user.
        ModelLoadError: If the user has neither a cache directory nor a temporary one.
    """
    return cache_homes()[-1]


def cache_homes() -> tuple[Path, ...]:
    """Return the directories in which entries are looked for; the last one is written to.

    There are two only if `AIOMLC_HOME` is not set and the user's cache directory cannot be written.

    Raises:
        BadRequestError: If `AIOMLC_HOME` names the home directory of an unknown user.
        ModelLoadError: If the user has neither a cache directory nor a temporary one.
    """
    if home := os.environ.get(_VARIABLE):
        return (_expand(home),)

    default = user_cache_path("aiomlc", appauthor=False)
    if not default.is_absolute():  # The user has no home directory.
        return (_temporary_home(default),)

    return (default,) if _is_writable(default) else (default, _temporary_home(default))


def cache_error(path: Path, error: OSError | str) -> ModelLoadError:
    """Return the error for a cache that cannot be read or written; it says what to do."""
    reason = error if isinstance(error, str) else error.strerror or str(error)
    if isinstance(error, OSError) and is_transient(error):
        problem = f"cannot use the cache: {reason}; try again with more open files (ulimit -n)"
        return ModelLoadError(f"{path}: {problem} or more memory", path=path)

    if reason in _FULL:
        advice = (
            "free some space, for example with `aiomlc cache clear`, "
            f"or set {_VARIABLE} to a directory on another disk"
        )
    else:
        advice = f"set {_VARIABLE} to a directory that can be written"
    return ModelLoadError(
        f"{path}: cannot write the cache: {reason}; {advice}", path=path, field=_VARIABLE
    )


def _expand(home: str) -> Path:
    try:
        return Path(home).expanduser().absolute()
    except RuntimeError:
        raise BadRequestError(
            f"{_VARIABLE} must be a directory, got {home!r}: there is no such user",
            param=_VARIABLE,
        ) from None


def _is_writable(directory: Path) -> bool:
    """Return whether a directory can be written, or created if it does not exist."""
    existing = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _temporary_home(default: Path) -> Path:
    """Return a directory below the system's temporary one that only this user can access."""
    path = default
    try:
        path = Path(tempfile.gettempdir()) / f"aiomlc-{os.getuid()}"
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise cache_error(path, error) from None

    is_private = status.st_uid == os.getuid() and not status.st_mode & 0o077
    if not stat.S_ISDIR(status.st_mode) or not is_private:
        raise cache_error(path, OSError(errno.EACCES, "not a private directory of this user"))

    _warn_once(default, path)
    return path


@functools.cache
def _warn_once(default: Path, path: Path) -> None:
    _logger.warning(
        "the cache directory %s cannot be written, so %s is used; "
        "set AIOMLC_HOME to a directory that is kept",
        default,
        path,
    )
