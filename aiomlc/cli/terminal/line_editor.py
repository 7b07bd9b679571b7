"""Questions typed in a terminal, with the line editing of prompt_toolkit.

Imported by an interactive chat only: prompt_toolkit takes a tenth of a second.
"""

from __future__ import annotations

__all__ = ("Complete", "TerminalInput")

import os
import re
from collections.abc import Callable, Iterator
from typing import TextIO, final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session, get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output import Output
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from aiomlc.cli.terminal.history import History

#: (line, its last word) → candidates for the last word.
Complete = Callable[[str, str], list[str]]

_PROMPT, _CONTINUATION = "> ", "... "
_QUOTES = '"""'
_STYLE = Style.from_dict(dict.fromkeys(("aborting", "exiting", "tab"), "default"))
_WORD = re.compile(r"[^ \t\n;=]*\Z")


@final
class TerminalInput:
    """Questions typed in a terminal, with line editing, completion and a history.

    Args:
        stdin: The terminal.
        output: Where the line is drawn; there is no line editing unless it is a terminal, too.
        history: The earlier questions.
        complete: Returns what the Tab key completes.
    """

    def __init__(
        self,
        stdin: TextIO,
        output: TextIO,
        history: History,
        *,
        complete: Complete = lambda line, word: [],
    ) -> None:
        self._stdin = stdin
        self._output = output
        self._session: PromptSession[str] | None = None
        if output.isatty():
            with create_app_session(create_input(stdin), _terminal(output)):
                self._session = _open_session(history, complete)

    def read(self) -> str:
        """Return the next question, which may have several lines.

        Raises:
            EOFError: At the end of the input (Ctrl-D).
            KeyboardInterrupt: If Ctrl-C discards the line.
        """
        text = self._read_lines() if self._session is None else self._session.prompt()
        if not text.startswith(_QUOTES):
            return text

        return text.removeprefix(_QUOTES).removesuffix(_QUOTES).strip("\n")

    def is_line_empty(self) -> bool:
        """Return whether nothing was typed when Ctrl-C ended `read`."""
        return self._session is None or not self._session.default_buffer.text

    def _read_lines(self) -> str:
        """Return a line, or those up to the closing quotes."""
        text = self._read_line(_PROMPT)
        while _is_open(text):
            text += "\n" + self._read_line(_CONTINUATION)
        return text

    def _read_line(self, prompt: str) -> str:
        self._output.write(prompt)
        self._output.flush()
        line = ""
        try:
            line = self._stdin.readline()
        finally:
            if not line:  # Ctrl-C or Ctrl-D.
                self._output.write("\n")
                self._output.flush()
        if not line:
            raise EOFError

        return line.removesuffix("\n")


def _open_session(history: History, complete: Complete) -> PromptSession[str]:
    bindings = KeyBindings()

    @Condition
    def continues() -> bool:
        """Whether Enter begins a line: in quotes, and in a paste that is not marked as one."""
        is_pasted = is_dumb_terminal() and bool(get_app().key_processor.input_queue)
        return is_pasted or _is_open(session.default_buffer.text)

    @Condition
    def is_question() -> bool:
        return not session.default_buffer.text.startswith("/")

    @bindings.add("tab", filter=is_question)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\t")

    @bindings.add("escape", "enter")
    @bindings.add("enter", filter=continues)  # prompt_toolkit's own would indent the line.
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        _PROMPT,
        multiline=continues,
        prompt_continuation=lambda width, number, wraps: "" if wraps else _CONTINUATION,
        history=history,
        completer=_Completer(complete),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,
        reserve_space_for_menu=0,
        key_bindings=bindings,
        style=_STYLE,
        input_processors=[TabsProcessor(tabstop=8, char1=" ", char2=" ")],
    )
    return session


def _is_open(text: str) -> bool:
    """Return whether a question begins with quotes that are not closed yet."""
    is_closed = len(text) >= 2 * len(_QUOTES) and text.endswith(_QUOTES)
    return text.startswith(_QUOTES) and not is_closed


def _terminal(output: TextIO) -> Output:
    if is_dumb_terminal():
        return PlainTextOutput(output)

    def size() -> Size:
        try:
            columns, rows = os.get_terminal_size(output.fileno())
        except (OSError, ValueError):
            columns = rows = 0
        return Size(rows=rows or 24, columns=columns or 80)

    # A terminal's answer to where its cursor is would be read as typed text during a response.
    return Vt100_Output(output, size, term=os.environ.get("TERM"), enable_cpr=False)


@final
class _Completer(Completer):
    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield what the last word before the cursor may be."""
        line = document.text_before_cursor
        match = _WORD.search(line)
        word = match[0] if match else ""
        for text in self._complete(line, word):
            yield Completion(text, start_position=-len(word))
