"""The one question of the command line and of standard input."""

from __future__ import annotations

__all__ = ("read_question",)

from typing import TextIO

from aiomlc.cli.terminal.failures import CommandError

_MAX_CHARACTERS = 1 << 24


def read_question(question: str | None, stdin: TextIO) -> str | None:
    """Return the one question of the command line; None if the user is to be asked for questions.

    Standard input is appended, unless it is a terminal. Without a question, or if it is `-`,
    standard input is the question.

    Raises:
        CommandError: If the question is empty, or standard input too long.
    """
    reads = question in (None, "-")
    if stdin.isatty() and question != "-":
        text = question
    else:
        parts = ["" if reads else question, _read_all(stdin)]
        text = "\n\n".join(filter(None, parts))

    if text is not None and not text.strip():
        raise CommandError("the prompt is empty: give one with -p, or on standard input")

    return text


def _read_all(stdin: TextIO) -> str:
    text = stdin.read(_MAX_CHARACTERS + 1)
    if len(text) > _MAX_CHARACTERS:
        raise CommandError(f"standard input must have at most {_MAX_CHARACTERS:,} characters")

    return text.strip("\n")
