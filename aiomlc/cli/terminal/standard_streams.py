"""Standard input, output and error, made safe to use."""

from __future__ import annotations

__all__ = ("discard_output", "prepare_streams", "set_sigpipe_action", "write_error")

import errno
import io
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal, TextIO


def prepare_streams() -> None:
    """Replace characters that a standard stream cannot encode or decode, instead of failing.

    Raises:
        OSError: If standard output is closed.
    """
    is_closed = sys.stdout is None
    sys.stdin = sys.stdin or _null("r")
    sys.stderr = sys.stderr or _null("w")
    sys.stdout = sys.stdout or _null("w")
    if is_closed:
        raise OSError(errno.EBADF, "standard output is closed")

    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _null(mode: Literal["r", "w"]) -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def set_sigpipe_action(action: Literal[signal.Handlers.SIG_DFL, signal.Handlers.SIG_IGN]) -> None:
    """Set what happens when the reader of standard output or of another pipe has gone.

    The default action ends the process without a word, as other programs do: typer and rich print
    the help, and exit with code 1 if that fails. A command must ignore the signal instead, because
    it has pipes to worker processes and sockets.
    """
    signal.signal(signal.SIGPIPE, action)


def discard_output() -> None:
    """Discard what is buffered for standard output, which would fail again at the exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):  # Standard output has no descriptor, as in tests.
        os.dup2(null, sys.stdout.fileno())
    os.close(null)


def write_error(message: str) -> None:
    """Write one line to standard error, unless that is impossible, too."""
    with suppress(OSError):
        sys.stderr.write(f"aiomlc: {message}\n")
        sys.stderr.flush()
