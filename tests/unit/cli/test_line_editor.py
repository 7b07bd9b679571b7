"""Questions typed in a terminal; tests/e2e types them to a whole chat."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from prompt_toolkit.input import create_pipe_input

from aiomlc.cli.terminal import line_editor
from aiomlc.cli.terminal.history import History
from aiomlc.cli.terminal.line_editor import TerminalInput
from tests.unit.cli.scene import FakeTerminal

Read: TypeAlias = Callable[[str], str]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """Return a function that types keys, and returns the question that they give."""
    monkeypatch.setenv("TERM", "xterm")
    with create_pipe_input() as keyboard:
        monkeypatch.setattr(line_editor, "create_input", lambda _: keyboard)

        def read_typed(keys: str) -> str:
            terminal = FakeTerminal(is_terminal=True)
            editor = TerminalInput(
                terminal,
                terminal,
                History(tmp_path / "history"),
                complete=lambda line, word: ["/stats"] if word == "/st" else [],
            )
            keyboard.send_text(keys)
            return editor.read()

        yield read_typed


@pytest.mark.parametrize(
    ("keys", "question"),
    [
        ("Hi\r", "Hi"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ("\x1b[200~def f(x):\r\n    return x\x1b[201~\r", "def f(x):\n    return x"),
        ('"""\rone\rtwo"""\r', "one\ntwo"),
        ('"""one"""\r', "one"),
        ("a\tb\r", "a\tb"),
        ("/st\t\r", "/stats"),
    ],
)
def test_keys_edit_a_question(read: Read, keys: str, question: str) -> None:
    assert read(keys) == question


def test_lines_that_come_together_are_one_question_where_a_paste_is_not_marked(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    keys = "def f(x):\n    return x\nWhat is this?\n"
    assert read(keys) == "def f(x):\n    return x\nWhat is this?"


def test_the_history_is_recalled(read: Read, tmp_path: Path) -> None:
    read("two\x1b\rlines\r")
    read("  \r")
    assert History(tmp_path / "history").load_history_strings() == ["two\nlines"]
    assert read("\x1b[A\r") == "two\nlines"


def test_ctrl_c_discards_the_line_and_ctrl_d_ends_the_input(read: Read) -> None:
    with pytest.raises(KeyboardInterrupt):
        read("abc\x03")

    with pytest.raises(EOFError):
        read("\x04")


def test_lines_are_read_without_editing_if_there_is_no_terminal_to_draw_on(tmp_path: Path) -> None:
    output = FakeTerminal()
    stdin = io.StringIO('Hi\n"""one\ntwo"""\n')
    editor = TerminalInput(stdin, output, History(tmp_path / "history"))

    assert [editor.read(), editor.read()] == ["Hi", "one\ntwo"]
    with pytest.raises(EOFError):
        editor.read()

    assert output.getvalue() == "> > ... > \n"
