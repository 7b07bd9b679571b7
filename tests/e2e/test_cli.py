"""The command line in a process of its own, at a terminal of its own where that matters."""

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
    """A process behind a pseudo-terminal; reading waits for what it is told to wait for."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._unread = b""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def read_until(self, expected: str) -> str:
        """Everything up to and with `expected`; the test's own time limit is the only one."""
        while (end := self._unread.find(expected.encode())) < 0:
            self._unread += os.read(self._terminal, 4096)
        end += len(expected.encode())
        seen, self._unread = self._unread[:end], self._unread[end:]
        return seen.decode()


@contextmanager
def conversation(*arguments: str) -> Iterator[Conversation]:
    """`aiomlc chat` at a terminal, whose Ctrl-C reaches it as a terminal's does."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "aiomlc", "chat", *arguments],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Conversation(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_one_question_is_answered_on_stdout_and_its_speed_told_on_stderr() -> None:
    result = run_program(["-m", "aiomlc", "chat", "Who are you?", "--temperature", "0"])

    assert result.returncode == 0
    assert "Pebble" in result.stdout
    assert "tokens/s" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_model_that_is_not_there_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    result = run_program(["-m", "aiomlc", "chat", "hi", "--model", str(tmp_path / "missing")])

    assert result.returncode == 1
    assert result.stderr.startswith("aiomlc: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_bad_option_is_the_callers_mistake() -> None:
    result = run_program(["-m", "aiomlc", "chat", "hi", "--temperature", "-3"])

    assert result.returncode == 2
    assert "temperature" in result.stderr
    assert "Traceback" not in result.stderr


def test_ctrl_c_at_the_prompt_goes_on_and_ctrl_d_leaves() -> None:
    with conversation("--temperature", "0") as talk:
        talk.read_until("> ")
        talk.process.send_signal(signal.SIGINT)
        # Where the signal came before readline began to wait, it is noticed with the next line.
        talk.type("\n")
        talk.type("What is 12 plus 30?\n")
        assert "42" in talk.read_until("tokens/s")

        talk.read_until("> ")
        talk.type("\x04")
        assert talk.process.wait(timeout=60) == 0


@pytest.mark.parametrize("leave", ["/exit\n", "\x04"])
def test_commands_answer_without_the_model(leave: str) -> None:
    with conversation() as talk:
        talk.read_until("> ")
        talk.type("/help\n")
        talk.read_until("Press Ctrl-C to stop a response.")
        talk.read_until("> ")
        talk.type("/nonsense\n")
        talk.read_until("unknown command")
        talk.read_until("> ")
        talk.type(leave)
        assert talk.process.wait(timeout=60) == 0
