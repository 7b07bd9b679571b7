"""A process at a pseudo-terminal."""

from __future__ import annotations

__all__ = ("Terminal", "chat_at_terminal")

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.e2e.programs import ROOT

# The modes that prompt_toolkit switches at each prompt, and the moves of the cursor.
_MODES = re.compile(rb"\x1b\[(?:\?\d+[hl]\r?|\d*[A-DJK]|0?m)")
_PROMPT = b">\x08\x1b[2C"  # It moves the cursor over the space.


class Terminal:
    """The other end of a pseudo-terminal: types to a process and reads what it writes."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._unread = b""
        self.banner = ""  #: What precedes the first prompt.

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def paste(self, text: str) -> None:
        """Type a text as a terminal does that marks what is pasted."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def read_until(self, expected: str) -> str:
        """Read up to and including `expected`; only the test's time limit applies."""
        while (end := self._unread.find(expected.encode())) < 0:
            try:
                data = os.read(self._descriptor, 4096)
            except OSError:  # The process has ended.
                pytest.fail(f"{expected!r} is not in {self._unread.decode()!r}")

            self._unread = _MODES.sub(b"", (self._unread + data).replace(_PROMPT, b"> "))
        end += len(expected.encode())
        text, self._unread = self._unread[:end], self._unread[end:]
        return text.decode().replace("\r\n", "\n")

    def ask(self, question: str) -> str:
        """Ask at the prompt, which was read, and return everything up to the next prompt."""
        self.type(f"{question}\n")
        self.read_until("\n")
        return self.read_until("\n> ")

    def leave(self) -> int:
        """Press Ctrl-D and return the exit code."""
        self.type("\x04")
        return self.process.wait(timeout=60)


@contextmanager
def chat_at_terminal(
    *arguments: str, columns: int = 80, environment: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Run `aiomlc chat` at a terminal of this width, up to its first prompt."""
    descriptor, process_end = pty.openpty()
    fcntl.ioctl(process_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "aiomlc", "chat", *arguments],
        cwd=ROOT,
        stdin=process_end,
        stdout=process_end,
        stderr=process_end,
        start_new_session=True,
        env={**inherited, "TERM": "xterm", **(environment or {})},
    )
    os.close(process_end)
    try:
        terminal = Terminal(process, descriptor)
        terminal.banner = terminal.read_until("> ")
        yield terminal
    finally:
        process.kill()
        process.wait()
        os.close(descriptor)
