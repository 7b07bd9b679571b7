"""Ctrl-C during a response."""

from __future__ import annotations

__all__ = ("handle_interrupt", "quiet_interrupts")

import os
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


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
    """Let the terminal neither drop its unread output at Ctrl-C nor write `^C` into it.

    Without effect if the input is no terminal, or in the background.
    """
    before: list[Any] | None = None
    # Not a terminal, not a file, or closed.
    with suppress(termios.error, OSError, ValueError):
        if _is_foreground(stdin):
            before = termios.tcgetattr(stdin)
            changed = [*before]
            changed[3] = (before[3] | termios.NOFLSH) & ~termios.ECHOCTL
            termios.tcsetattr(stdin, termios.TCSANOW, changed)
    try:
        yield
    finally:
        with suppress(termios.error, OSError, ValueError):
            if before is not None and _is_foreground(stdin):
                termios.tcsetattr(stdin, termios.TCSANOW, before)


def _is_foreground(stdin: TextIO) -> bool:
    """Return whether the terminal may be changed: that would stop a process in the background."""
    try:
        return os.tcgetpgrp(stdin.fileno()) == os.getpgrp()
    except OSError:  # It does not control this process, so it cannot stop it.
        return True
