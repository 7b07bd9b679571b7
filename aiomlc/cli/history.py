"""Line input from standard input; in a terminal with editing and a persistent history."""

from __future__ import annotations

__all__ = ("line_reader",)

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiomlc.cache_dir import cache_home

_MAX_LINES = 1000
_logger = logging.getLogger("aiomlc")


@contextmanager
def line_reader() -> Iterator[Callable[[], str]]:
    """Yield a function that reads one line and raises EOFError at the end of input."""
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
    """Enable line editing and load the history, if the platform has readline."""
    try:
        import readline
    except ImportError:
        return

    readline.set_history_length(_MAX_LINES)
    try:
        readline.read_history_file(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        _logger.warning("cannot read the history file %s: %s", path, error)


def save_history(path: Path) -> None:
    """Write the history to a file, if the platform has readline."""
    try:
        import readline
    except ImportError:
        return

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(path)
    except OSError as error:
        _logger.warning("cannot write the history file %s: %s", path, error)
