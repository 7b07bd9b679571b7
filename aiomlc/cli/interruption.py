"""Ctrl-C during a response."""

from __future__ import annotations

__all__ = ("handle_interrupt", "quiet_interrupts")

import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


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


@contextmanager
def quiet_interrupts(stdin: TextIO) -> Iterator[None]:
    """Let the terminal neither drop its unread output at Ctrl-C nor write `^C` into it."""
    try:
        before = termios.tcgetattr(stdin)
    except (termios.error, OSError, ValueError):  # Not a terminal, or not a file.
        yield
        return

    changed = [*before]
    changed[3] = (before[3] | termios.NOFLSH) & ~termios.ECHOCTL
    try:
        termios.tcsetattr(stdin, termios.TCSANOW, changed)
        yield
    finally:
        with suppress(termios.error):  # The terminal was closed.
            termios.tcsetattr(stdin, termios.TCSANOW, before)
