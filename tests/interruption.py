"""Ctrl-C for a main thread that waits: its signal is never lost.

CPython does not notice a signal that arrives after its last check for signals and before the system
call in which the thread waits. A user presses Ctrl-C again. A test sends another signal until the
first is noticed.
"""

from __future__ import annotations

__all__ = ("WAKE_UP", "interrupt_main_thread", "notice_wake_up")

import signal
import threading
from typing import Final

#: Its number is larger than that of SIGINT, so that Python handles it after SIGINT.
WAKE_UP: Final = signal.SIGUSR1

_noticed = threading.Event()


def notice_wake_up(*_: object) -> None:
    """Handle `WAKE_UP`; the handler of the test session."""
    _noticed.set()


def interrupt_main_thread() -> None:
    """Send SIGINT to the main thread and return after Python has seen it there.

    Must be called from another thread.
    """
    main = threading.main_thread().ident
    assert main is not None
    assert main != threading.get_ident()
    _noticed.clear()
    signal.pthread_kill(main, signal.SIGINT)
    while not _noticed.is_set():
        signal.pthread_kill(main, WAKE_UP)
        _noticed.wait(0.001)
