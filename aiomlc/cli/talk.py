"""The terminal's side of a conversation.

The main thread belongs to the terminal and the engine lives on an event loop beside it: only so
does Ctrl-C reach a waiting `input` and a running answer alike.
"""

from __future__ import annotations

__all__ = ("ChatSettings", "Talk", "run_chat")

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO, final

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.cli.chat_session import AnswerStatistics, Conversation
from aiomlc.cli.history import line_reader
from aiomlc.cli.progress import ProgressDisplay
from aiomlc.config import EngineConfig
from aiomlc.errors import EngineClosedError, EngineDeadError, EngineError, RequestError

_HELP = """\
/help    this list
/reset   forget the conversation
/stats   what the engine did so far
/exit    leave, as Ctrl-D does
Ctrl-C stops an answer.
"""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What the command line asked for."""

    model: str | None = None
    system: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  #: Fields of every request.
    engine: Mapping[str, Any] = field(default_factory=dict)  #: Fields of the configuration.


def run_chat(settings: ChatSettings, prompt: str | None) -> None:
    """Answer one prompt, or converse until the user leaves.

    Raises:
        AiomlcError: a field is refused, the model does not load, or the one prompt cannot be
            answered.
        KeyboardInterrupt: the one answer, or the loading, was interrupted.
    """
    config = EngineConfig(**settings.engine)
    with start_blocking_portal() as portal, ProgressDisplay(sys.stderr) as display:
        engine = AsyncMLCEngine(
            settings.model, mode="interactive", engine_config=config, on_progress=display.show
        )
        with portal.wrap_async_context_manager(engine):
            display.close()
            conversation = Conversation(engine, system=settings.system, options=settings.options)
            talk = Talk(portal, conversation, sys.stdout, sys.stderr, statistics=engine.statistics)
            if prompt is not None:
                talk.answer(prompt)
            else:
                with line_reader() as read_line:
                    talk.converse(read_line)


@contextmanager
def _interrupt_calls(stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C call `stop` instead of raising wherever the main thread happens to be.

    Yields a function that tells whether there was one; a second one raises at once.
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
class Talk:
    """Questions from a terminal, answers and their figures back to it."""

    def __init__(
        self,
        portal: BlockingPortal,
        conversation: Conversation,
        output: TextIO,
        notes: TextIO,
        *,
        statistics: Callable[[], object],
    ) -> None:
        self._portal = portal
        self._conversation = conversation
        self._output = output
        self._notes = notes
        self._commands: dict[str, Callable[[], None]] = {
            "/help": lambda: self._note(_HELP.rstrip()),
            "/reset": conversation.reset,
            "/stats": lambda: self._note(str(statistics())),
        }

    def answer(self, prompt: str) -> None:
        """Stream one answer.

        Raises:
            KeyboardInterrupt: Ctrl-C stopped the answer; the engine has let go of it by then.
        """

        def stop() -> None:
            self._portal.start_task_soon(self._conversation.stop)

        with _interrupt_calls(stop) as was_interrupted:
            future = self._portal.start_task_soon(self._conversation.answer, prompt, self._write)
            if was_interrupted():  # Perhaps before there was an answer to stop.
                stop()
            statistics = future.result()

        self._end(statistics)
        if was_interrupted():
            raise KeyboardInterrupt

    def converse(self, read_line: Callable[[], str]) -> None:
        """Answer line after line, until the end of input or `/exit`."""
        going_on = True
        while going_on:
            try:
                going_on = self._take(read_line().strip())
            except KeyboardInterrupt:  # It stops an answer or a line, not the program.
                self._write("\n")
            except EOFError:
                self._write("\n" if self._output.isatty() else "")
                return

    def _take(self, line: str) -> bool:
        """Do what a line says; false when it says to leave."""
        if line == "/exit":
            return False

        if line.startswith("/"):
            self._commands.get(line, self._unknown_command)()
        elif line:
            self._try_to_answer(line)

        return True

    def _try_to_answer(self, prompt: str) -> None:
        try:
            self.answer(prompt)
        except (EngineDeadError, EngineClosedError):
            raise
        except (RequestError, EngineError) as error:
            self._note(f"aiomlc: {error}")

    def _unknown_command(self) -> None:
        self._note("aiomlc: no such command; /help lists them")

    def _end(self, statistics: AnswerStatistics) -> None:
        self._write("\n")
        self._note(f"[{statistics}]")

    def _write(self, text: str) -> None:
        # On the event loop, but the loop serves nobody else than this reader.
        self._output.write(text)
        self._output.flush()

    def _note(self, text: str) -> None:
        dim, plain = ("\x1b[2m", "\x1b[0m") if self._notes.isatty() else ("", "")
        self._notes.write(f"{dim}{text}{plain}\n")
        self._notes.flush()
