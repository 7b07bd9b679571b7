"""The input of questions: lines of a terminal, or the whole of standard input."""

from __future__ import annotations

__all__ = ("TerminalInput", "read_question")

import os
import select
from contextlib import suppress
from types import ModuleType
from typing import TextIO, final

from aiomlc.cli.terminal.completion import Complete, bind_completion
from aiomlc.cli.terminal.failures import CommandError
from aiomlc.cli.terminal.history import History

_PROMPT, _CONTINUATION = "> ", "... "
_LINE_ENDS = ("\n", "\r")
_QUOTES = '"""'
_MAX_CHARACTERS = 1 << 24
_PASTE_SECONDS = 0.05  # The longest pause between two lines of a paste.


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


@final
class TerminalInput:
    """Questions typed in a terminal, with line editing and a history if there is readline.

    Args:
        stdin: The terminal.
        stdout: Where `input` writes its prompt.
        stderr: Gets the prompt if `stdout` is not a terminal.
        history: The earlier questions.
        complete: Returns what the Tab key completes.
    """

    def __init__(
        self,
        stdin: TextIO,
        stdout: TextIO,
        stderr: TextIO,
        history: History,
        *,
        complete: Complete = lambda line, word: [],
    ) -> None:
        self._stdin = stdin
        self._stderr = stderr
        self._history = history
        self._edits = stdout.isatty()
        self._readline = _load_readline(history) if self._edits else None
        self._marks_paste = self._readline is not None and _mark_paste(self._readline)
        if self._readline is not None and self._marks_paste:  # Else pasted tabs would complete.
            bind_completion(self._readline, complete)

    def read(self) -> str:
        """Return the next question, which may have several lines.

        Raises:
            EOFError: At the end of the input (Ctrl-D).
        """
        text = self._read_line(_PROMPT) + self._read_pasted()
        if text.startswith(_QUOTES) and "\n" not in text:
            text = self._read_quoted(text.removeprefix(_QUOTES))
        if text.strip():
            self._remember(text)
        return text

    def is_line_empty(self) -> bool:
        """Return whether nothing was typed when Ctrl-C ended `read`."""
        return self._readline is None or not self._readline.get_line_buffer()

    def _read_line(self, prompt: str) -> str:
        if self._edits:
            return input(prompt)

        self._stderr.write(prompt)
        self._stderr.flush()
        line = self._stdin.readline()
        if not line:
            raise EOFError

        return line.removesuffix("\n")

    def _read_quoted(self, text: str) -> str:
        while not text.endswith(_QUOTES):
            text += "\n" + self._read_line(_CONTINUATION)

        return text.removesuffix(_QUOTES).strip("\n")

    def _read_pasted(self) -> str:
        """Return the lines that follow at once, where the terminal does not mark a paste."""
        if self._marks_paste:
            return ""

        data = b""
        while select.select([self._stdin], [], [], _PASTE_SECONDS)[0]:
            # What came before the terminal was switched to whole lines may end without a newline.
            more = os.read(self._stdin.fileno(), 1 << 16)
            data += more
            if not more:  # Ctrl-D.
                break

        text = data.decode(self._stdin.encoding, "replace")
        if text and not text.endswith(_LINE_ENDS):  # The user edits the last line.
            text += self._stdin.readline()
        lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
        return f"\n{lines}" if lines else ""

    def _remember(self, text: str) -> None:
        if self._readline is not None:
            _add_history(self._readline, text)
            self._history.append(text)


def _load_readline(history: History) -> ModuleType | None:
    """Return readline with the history, if this Python has it."""
    try:
        import readline
    except ImportError:
        return None

    readline.set_auto_history(False)
    for question in history.load():
        _add_history(readline, question)

    return readline


def _add_history(readline: ModuleType, question: str) -> None:
    with suppress(UnicodeEncodeError):  # The locale, such as C, lacks a character.
        readline.add_history(question)


def _mark_paste(readline: ModuleType) -> bool:
    """Let the terminal mark a paste, and Alt-Enter begin a new line; return whether it can."""
    if "libedit" in (readline.__doc__ or "") or os.environ.get("TERM", "dumb") == "dumb":
        return False

    readline.parse_and_bind("set enable-bracketed-paste on")
    readline.parse_and_bind(r'"\e\C-m": "\C-v\C-j"')
    return True
