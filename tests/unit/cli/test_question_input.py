"""The input of questions; tests/e2e types them in a terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from aiomlc.cli.terminal.failures import CommandError
from aiomlc.cli.terminal.question_input import read_question
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
