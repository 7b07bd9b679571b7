"""Lines from standard input; in a terminal with editing and a history that outlives the process."""

from __future__ import annotations

__all__ = ("line_reader",)

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiomlc.cache_dir import cache_home

_LENGTH = 1000
_logger = logging.getLogger("aiomlc")


@contextmanager
def line_reader() -> Iterator[Callable[[], str]]:
    """A function that reads a line; it raises EOFError at the end of input."""
    if not sys.stdin.isatty():
        yield input
        return

    path = cache_home() / "history"
    load_history(path)
    try:
        yield lambda: input("> ")
    finally:
        save_history(path)


def load_history(path: Path) -> None:
    """Make `input` edit lines and offer the earlier ones, where the platform has readline."""
    try:
        import readline
    except ImportError:
        return

    readline.set_history_length(_LENGTH)
    try:
        readline.read_history_file(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        _logger.warning("the history %s is not read: %s", path, error)


def save_history(path: Path) -> None:
    """Keep the lines for the next time."""
    try:
        import readline
    except ImportError:
        return

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(path)
    except OSError as error:
        _logger.warning("the history %s is not written: %s", path, error)
