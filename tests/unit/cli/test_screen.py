"""The terminal, or the files, that a chat writes to."""

from __future__ import annotations

import pytest

from aiomlc.cli.terminal.screen import Screen
from tests.unit.cli.scene import FakeTerminal


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def written(*, is_terminal: bool) -> tuple[str, str]:
    """Write an answer with reasoning and a note; return the output and the notes."""
    output, notes = FakeTerminal(is_terminal=is_terminal), FakeTerminal(is_terminal=is_terminal)
    screen = Screen(output, notes)
    screen.write_reasoning("Let me ")
    screen.write_reasoning("think.")
    screen.write_answer("It is ")
    screen.write_answer("42.")
    screen.end_answer()
    screen.note("[2 tokens]")
    screen.show("shown")
    return output.getvalue(), notes.getvalue()


def test_reasoning_and_notes_are_dim_in_a_terminal() -> None:
    output, notes = written(is_terminal=True)

    assert output == "\x1b[2mLet me\x1b[0m\x1b[2m think.\x1b[0m\n\nIt is 42.\n"
    assert notes == "\x1b[2m[2 tokens]\x1b[0m\nshown\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_the_user_may_refuse_escape_sequences(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    output, notes = written(is_terminal=True)

    assert output == "Reasoning: Let me think.\n\nIt is 42.\n"
    assert notes == "[2 tokens]\nshown\n"


def test_an_empty_no_color_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")

    assert "\x1b[2m" in written(is_terminal=True)[1]


def test_remarks_are_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiomlc.cli.terminal.screen._width", lambda _: 12)
    notes = FakeTerminal(is_terminal=True)
    screen = Screen(notes, notes)
    screen.show("cannot read the file\n  indented")
    screen.note("[one two three]")

    assert notes.getvalue() == (
        "cannot read\nthe file\n  indented\n\x1b[2m[one two\nthree]\x1b[0m\n"
    )


def test_a_pipe_gets_the_answer_alone() -> None:
    assert written(is_terminal=False) == ("It is 42.\n", "shown\n")


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize(
    ("answer", "expected"), [("One.", "One.\n"), ("One.\n", "One.\n"), ("", "")]
)
def test_an_answer_ends_with_one_newline(is_terminal: bool, answer: str, expected: str) -> None:
    output = FakeTerminal(is_terminal=is_terminal)
    screen = Screen(output, FakeTerminal())
    if answer:
        screen.write_answer(answer)
    screen.end_answer()

    assert output.getvalue() == expected


def test_a_pipe_gets_an_answer_byte_for_byte() -> None:
    output = FakeTerminal()
    screen = Screen(output, FakeTerminal())
    text = "a  \t\x1b[0m " + "word " * 100 + "\n"
    screen.write_answer(text)
    screen.end_answer()

    assert output.getvalue() == text


@pytest.mark.parametrize(
    ("is_terminal", "term", "expected"),
    [
        (True, "xterm", "\rreading 10\rdone      \r    \r"),
        (True, "dumb", ""),
        (False, "xterm", ""),
    ],
)
def test_the_next_text_replaces_the_status(
    is_terminal: bool, term: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    output, notes = FakeTerminal(is_terminal=is_terminal), FakeTerminal(is_terminal=is_terminal)
    screen = Screen(output, notes)
    screen.show_status("reading 10")
    screen.show_status("done")
    screen.write_answer("Hi")
    screen.end_answer()

    assert notes.getvalue() == expected
    assert output.getvalue() == "Hi\n"
