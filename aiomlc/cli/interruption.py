"""Ctrl-C during a response."""

from __future__ import annotations

__all__ = ("handle_interrupt",)

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def handle_interrupt(stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C call `stop` instead of raising KeyboardInterrupt in the main thread.

    A second Ctrl-C raises at once. Yields a function that returns whether Ctrl-C was pressed.
    """
    interrupted = False

    def handle(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt

        interrupted = True
        stop()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, previous)
