"""The command line, run in a subprocess; conversations run at a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.programs import ROOT, run_program


class Conversation:
    """A process at a pseudo-terminal."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._unread = b""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def read_until(self, expected: str) -> str:
        """Read up to and including `expected`; only the test's time limit applies."""
        while (end := self._unread.find(expected.encode())) < 0:
            self._unread += os.read(self._terminal, 4096)
        end += len(expected.encode())
        text, self._unread = self._unread[:end], self._unread[end:]
        return text.decode()


@contextmanager
def conversation(*arguments: str) -> Iterator[Conversation]:
    """Run `aiomlc chat` at a pseudo-terminal."""
    terminal, process_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "aiomlc", "chat", *arguments],
        cwd=ROOT,
        stdin=process_end,
        stdout=process_end,
        stderr=process_end,
        start_new_session=True,
    )
    os.close(process_end)
    try:
        yield Conversation(process, terminal)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def test_answer_is_printed_to_stdout_and_the_speed_to_stderr() -> None:
    result = run_program(["-m", "aiomlc", "chat", "-p", "Who are you?", "--temperature", "0"])

    assert result.returncode == 0
    assert "Pebble" in result.stdout
    assert "tokens/s" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_missing_model_prints_one_line_without_traceback(tmp_path: Path) -> None:
    result = run_program(["-m", "aiomlc", "chat", str(tmp_path / "missing"), "-p", "hi"])

    assert result.returncode == 1
    assert result.stderr.startswith("aiomlc: ")
    assert len(result.stderr.splitlines()) == 1


def test_invalid_option_exits_with_status_2() -> None:
    result = run_program(["-m", "aiomlc", "chat", "-p", "hi", "--temperature", "-3"])

    assert result.returncode == 2
    assert "temperature" in result.stderr
    assert "Traceback" not in result.stderr


def test_ctrl_c_at_the_prompt_continues_and_ctrl_d_exits() -> None:
    with conversation("--temperature", "0") as chat:
        chat.read_until("> ")
        chat.process.send_signal(signal.SIGINT)
        # If the signal arrives before readline waits, it is handled with the next line.
        chat.type("\n")
        chat.type("What is 12 plus 30?\n")
        assert "42" in chat.read_until("tokens/s")

        chat.read_until("> ")
        chat.type("\x04")
        assert chat.process.wait(timeout=60) == 0


@pytest.mark.parametrize("leave", ["/exit\n", "\x04"])
def test_commands_do_not_need_the_model(leave: str) -> None:
    with conversation() as chat:
        chat.read_until("> ")
        chat.type("/help\n")
        chat.read_until("Press Ctrl-C to stop a response.")
        chat.read_until("> ")
        chat.type("/nonsense\n")
        chat.read_until("unknown command")
        chat.read_until("> ")
        chat.type(leave)
        assert chat.process.wait(timeout=60) == 0
