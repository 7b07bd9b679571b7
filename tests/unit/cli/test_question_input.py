"""The input of questions; tests/e2e types them in a terminal."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from aiomlc.cli.terminal.failures import CommandError
from aiomlc.cli.terminal.history import History
from aiomlc.cli.terminal.question_input import TerminalInput, read_question
from tests.unit.cli.scene import FakeTerminal


@pytest.mark.parametrize(
    ("question", "stdin", "expected"),
    [
        ("Summarize", "one\ntwo\n", "Summarize\n\none\ntwo"),
        ("Summarize", "", "Summarize"),
        ("Summarize", "\n", "Summarize"),
        ("-", "one\ntwo\n", "one\ntwo"),
        (None, "one\ntwo\n", "one\ntwo"),
    ],
)
def test_standard_input_is_a_part_of_the_question(
    question: str | None, stdin: str, expected: str
) -> None:
    assert read_question(question, io.StringIO(stdin)) == expected


@pytest.mark.parametrize(("question", "expected"), [("Hi", "Hi"), (None, None)])
def test_a_terminal_is_not_read(question: str | None, expected: str | None) -> None:
    assert read_question(question, FakeTerminal(is_terminal=True)) == expected


@pytest.mark.parametrize("question", ["", "  ", None, "-"])
def test_an_empty_question_is_rejected(question: str | None) -> None:
    with pytest.raises(CommandError, match="the prompt is empty"):
        read_question(question, io.StringIO(" \n"))


def test_an_endless_standard_input_is_rejected() -> None:
    with Path("/dev/zero").open() as zeros, pytest.raises(CommandError, match="at most 16,777,216"):
        read_question("Summarize", zeros)


class Prompts(io.StringIO):
    """An output that calls a function with each text."""

    def __init__(self) -> None:
        super().__init__()
        self.on_write: Callable[[str], None] = lambda _: None

    def write(self, text: str) -> int:
        self.on_write(text)
        return super().write(text)


class Typist:
    """A reader of a pseudo-terminal without line editing, and its other end."""

    def __init__(self, keyboard: int, stdin: TextIO, path: Path) -> None:
        self._keyboard = keyboard
        self.prompts = Prompts()
        self.reader = TerminalInput(stdin, FakeTerminal(), self.prompts, History(path))

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def type_at(self, prompt: str, *lines: str) -> None:
        """Type the next of these lines whenever the prompt is written."""
        remaining = iter(lines)
        self.prompts.on_write = lambda text: self.type(next(remaining) if text == prompt else "")


@pytest.fixture
def typist(tmp_path: Path) -> Iterator[Typist]:
    keyboard, terminal = pty.openpty()
    with open(terminal, encoding="utf-8") as stdin:  # noqa: PTH123 - a descriptor.
        yield Typist(keyboard, stdin, tmp_path / "history")
    os.close(keyboard)


def test_lines_that_come_together_are_one_question(typist: Typist) -> None:
    typist.type("def f(x):\n    return x\nWhat is this?\n")

    assert typist.reader.read() == "def f(x):\n    return x\nWhat is this?"
    assert typist.prompts.getvalue() == "> "


def test_a_question_may_be_quoted(typist: Typist) -> None:
    typist.type_at("... ", "one\n", 'two"""\n')
    typist.type('"""\n')

    assert typist.reader.read() == "one\ntwo"


def test_a_question_may_be_quoted_on_one_line(typist: Typist) -> None:
    typist.type('"""one"""\n')

    assert typist.reader.read() == "one"


def test_ctrl_d_ends_the_input(typist: Typist) -> None:
    typist.type("\x04")

    with pytest.raises(EOFError):
        typist.reader.read()
