"""The interactive chat in a terminal.

The main thread reads the terminal, and the engine runs on an event loop in another thread. That
way Ctrl-C can interrupt both a waiting `input` and a running response.
"""

from __future__ import annotations

__all__ = ("ChatSettings", "TerminalChat", "run_chat")

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO, final

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.cli.chat_session import ChatSession, ResponseStatistics
from aiomlc.cli.history import line_reader
from aiomlc.cli.progress import ProgressDisplay
from aiomlc.config import EngineConfig
from aiomlc.errors import EngineClosedError, EngineDeadError, EngineError, RequestError

_HELP = """\
/help    show this list
/reset   clear the conversation
/stats   show the engine's statistics
/exit    leave the chat (or press Ctrl-D)
Press Ctrl-C to stop a response.
"""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """The settings of the `chat` command."""

    model: str | None = None
    system: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  #: Fields of every request.
    engine: Mapping[str, Any] = field(default_factory=dict)  #: Fields of the EngineConfig.


def run_chat(settings: ChatSettings, prompt: str | None) -> None:
    """Answer one prompt, or chat until the user leaves.

    Raises:
        AiomlcError: If a field is invalid, the model cannot be loaded, or the one prompt cannot
            be answered.
        KeyboardInterrupt: If the loading or the one response was interrupted.
    """
    config = EngineConfig(**settings.engine)
    with start_blocking_portal() as portal, ProgressDisplay(sys.stderr) as display:
        engine = AsyncMLCEngine(
            settings.model, mode="interactive", engine_config=config, on_progress=display.show
        )
        with portal.wrap_async_context_manager(engine):
            display.close()
            session = ChatSession(engine, system=settings.system, options=settings.options)
            terminal = TerminalChat(
                portal, session, sys.stdout, sys.stderr, statistics=engine.statistics
            )
            if prompt is not None:
                terminal.answer(prompt)
            else:
                with line_reader() as read_line:
                    terminal.chat(read_line)


@contextmanager
def _interrupt_handler(stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C call `stop` instead of raising KeyboardInterrupt in the main thread.

    A second Ctrl-C raises at once. Yields a function that returns whether Ctrl-C was pressed.
    """
    interrupted = False

    def handle(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt

        interrupted = True
        stop()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, previous)


@final
class TerminalChat:
    """A loop that reads prompts and commands, and writes responses and their statistics."""

    def __init__(
        self,
        portal: BlockingPortal,
        session: ChatSession,
        output: TextIO,
        notes: TextIO,
        *,
        statistics: Callable[[], object],
    ) -> None:
        self._portal = portal
        self._session = session
        self._output = output
        self._notes = notes
        self._commands: dict[str, Callable[[], None]] = {
            "/help": lambda: self._note(_HELP.rstrip()),
            "/reset": session.reset,
            "/stats": lambda: self._note(str(statistics())),
        }

    def answer(self, prompt: str) -> None:
        """Stream the response to one prompt.

        Raises:
            KeyboardInterrupt: If Ctrl-C stopped the response; its request is already cancelled.
        """

        def stop() -> None:
            self._portal.start_task_soon(self._session.stop)

        with _interrupt_handler(stop) as was_interrupted:
            future = self._portal.start_task_soon(self._session.answer, prompt, self._write)
            if was_interrupted():  # Possibly before there was a response to stop.
                stop()
            statistics = future.result()

        self._write_statistics(statistics)
        if was_interrupted():
            raise KeyboardInterrupt

    def chat(self, read_line: Callable[[], str]) -> None:
        """Answer each line until the end of input or `/exit`."""
        is_active = True
        while is_active:
            try:
                is_active = self._handle_line(read_line().strip())
            except KeyboardInterrupt:  # Stops the response or the line, not the program.
                self._write("\n")
            except EOFError:
                self._write("\n" if self._output.isatty() else "")
                return

    def _handle_line(self, line: str) -> bool:
        """Run the command or answer the prompt of a line; return False if it is `/exit`."""
        if line == "/exit":
            return False

        if line.startswith("/"):
            self._commands.get(line, self._unknown_command)()
        elif line:
            self._answer_or_report(line)

        return True

    def _answer_or_report(self, prompt: str) -> None:
        try:
            self.answer(prompt)
        except (EngineDeadError, EngineClosedError):
            raise
        except (RequestError, EngineError) as error:
            self._note(f"aiomlc: {error}")

    def _unknown_command(self) -> None:
        self._note("aiomlc: unknown command; /help lists the commands")

    def _write_statistics(self, statistics: ResponseStatistics) -> None:
        self._write("\n")
        self._note(f"[{statistics}]")

    def _write(self, text: str) -> None:
        # May block the event loop, which serves only this chat.
        self._output.write(text)
        self._output.flush()

    def _note(self, text: str) -> None:
        dim, plain = ("\x1b[2m", "\x1b[0m") if self._notes.isatty() else ("", "")
        self._notes.write(f"{dim}{text}{plain}\n")
        self._notes.flush()
