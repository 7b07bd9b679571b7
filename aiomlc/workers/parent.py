"""The side of the subprocess: its messages, and its end when its parent ends."""

from __future__ import annotations

__all__ = ("end_with_parent", "write_message")

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # From <sys/prctl.h>.


def write_message(**values: object) -> None:
    """Write a JSON object as one line of standard output."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def end_with_parent(parent: int, clean_up: Callable[[], object]) -> None:
    """Make the kernel signal the end of the parent, upon which this process ends."""

    def end(*_: object) -> None:
        # The signal is also sent when only the thread that started this process ends.
        if os.getppid() != parent:
            clean_up()
            os._exit(1)

    signal.signal(signal.SIGUSR1, end)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGUSR1), 0, 0, 0)
    end()  # The parent may have ended before the call.
