"""The interactive chat in a terminal.

The main thread reads the terminal, and the engine runs on an event loop in another thread. That
way Ctrl-C can interrupt both a waiting `input` and a running response.
"""

from __future__ import annotations

__all__ = ("ChatSettings", "TerminalChat", "run_chat")

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, final

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.cache import cache_home
from aiomlc.cli.chat.commands import ChatCommands, is_command, is_farewell
from aiomlc.cli.chat.sampling_settings import check_parameters
from aiomlc.cli.chat.session import ChatSession
from aiomlc.cli.terminal.figures import ResponseFigures
from aiomlc.cli.terminal.interruption import handle_interrupt, quiet_interrupts
from aiomlc.cli.terminal.progress import ProgressLine
from aiomlc.cli.terminal.question_input import read_question
from aiomlc.cli.terminal.screen import Screen
from aiomlc.cli.terminal.status_line import StatusLine
from aiomlc.config import EngineConfig
from aiomlc.errors import EngineClosedError, EngineDeadError, EngineError, RequestError
from aiomlc.sampling_params import SamplingParams

if TYPE_CHECKING:
    from aiomlc.runtime.engine.core_protocol import CoreStatistics


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """The settings of the `chat` command."""

    model: str | None = None
    device: str = "auto"
    system: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  #: Fields of every request.
    engine: EngineConfig = field(default_factory=EngineConfig)


class QuestionReader(Protocol):
    """The input of an interactive chat."""

    def read(self) -> str:
        """Return the next question; raise EOFError at the end."""
        ...

    def is_line_empty(self) -> bool:
        """Return whether nothing was typed when Ctrl-C ended `read`."""
        ...


def run_chat(settings: ChatSettings, prompt: str | None, status: StatusLine) -> None:
    """Answer one prompt, or chat until the user leaves.

    Args:
        settings: The settings.
        prompt: The prompt; None for a chat, or for one from standard input.
        status: The line that is shown until the loading of the model has a line of its own.

    Raises:
        AiomlcError: If a field is invalid, the model cannot be loaded, or the one prompt cannot
            be answered.
        KeyboardInterrupt: If the loading or the one response was interrupted.
        OSError: If the output cannot be written.
    """
    question = read_question(prompt, sys.stdin)
    check_parameters(settings.options)
    screen = Screen(sys.stdout, sys.stderr)
    with (
        start_blocking_portal() as portal,
        _open_engine(portal, settings, status) as engine,
    ):
        session = ChatSession(engine, screen, system=settings.system, options=settings.options)
        chat = TerminalChat(
            portal,
            session,
            screen,
            statistics=engine.statistics,
            describe_model=partial(_describe_model, engine),
            defaults=_model_defaults(engine),
        )
        if question is not None:
            chat.answer(question)
        else:
            # Imported late: prompt_toolkit takes a tenth of a second.
            from aiomlc.cli.terminal.history import History
            from aiomlc.cli.terminal.line_editor import TerminalInput

            screen.note(_banner(engine))
            history = History(cache_home() / "history")
            output = sys.stdout if sys.stdout.isatty() else sys.stderr
            chat.run(TerminalInput(sys.stdin, output, history, complete=chat.complete))


@contextmanager
def _open_engine(
    portal: BlockingPortal, settings: ChatSettings, status: StatusLine
) -> Iterator[AsyncMLCEngine]:
    line = ProgressLine(sys.stderr, previous=status)
    engine = AsyncMLCEngine(
        settings.model,
        settings.device,
        mode="interactive",
        engine_config=settings.engine,
        on_progress=line.show,
    )
    drawing = portal.start_task_soon(line.run)

    def stop_drawing() -> None:
        portal.call(line.stop)
        drawing.cancel()

    with ExitStack() as scope:
        try:
            scope.enter_context(portal.wrap_async_context_manager(engine))
        finally:
            stop_drawing()
        yield engine


def _model_defaults(engine: AsyncMLCEngine) -> SamplingParams:
    if engine.memory_plan is None:  # Of mock://echo, which has no files.
        return SamplingParams()

    from aiomlc.runtime.loading.model_directory import find_model  # Imported by the loader.

    return find_model(engine.engine_config.model).sampling_defaults()


def _describe_model(engine: AsyncMLCEngine) -> str:
    if engine.memory_plan is None:  # Of mock://echo.
        return _banner(engine)

    from aiomlc.cli.chat.model_summary import format_summary, summarize_model
    from aiomlc.runtime.loading.model_directory import find_model

    return format_summary(summarize_model(find_model(engine.engine_config.model)))


def _banner(engine: AsyncMLCEngine) -> str:
    plan = engine.memory_plan
    if plan is None:  # Of mock://echo.
        name = engine.engine_config.model
    else:
        name = f"{plan.models[0].name} ({plan.models[0].quantization})"
    window = engine.max_input_sequence_length
    return f"{name}, context of {window:,} tokens. /help lists the commands."


@final
class TerminalChat:
    """A loop that reads questions and commands, and shows answers and their figures."""

    def __init__(
        self,
        portal: BlockingPortal,
        session: ChatSession,
        screen: Screen,
        *,
        statistics: Callable[[], CoreStatistics],
        describe_model: Callable[[], str],
        defaults: SamplingParams,
    ) -> None:
        self._portal = portal
        self._session = session
        self._screen = screen
        self._commands = ChatCommands(
            session,
            screen,
            statistics=statistics,
            describe_model=describe_model,
            answer_again=self._answer_again,
            defaults=defaults,
        )

    def complete(self, line: str, word: str) -> list[str]:
        """Return what the last word of a line may be: nothing unless the line is a command."""
        return self._commands.complete(line, word) if is_command(line) else []

    def answer(self, question: str) -> None:
        """Stream the answer to a question.

        Raises:
            KeyboardInterrupt: If Ctrl-C stopped the answer; its request is already cancelled.
        """
        self._generate(lambda: self._session.answer(question))

    def run(self, reader: QuestionReader) -> None:
        """Answer each question and run each command until the user leaves."""
        try:
            while True:
                self._handle(self._read(reader))
        except EOFError:
            pass

    def _read(self, reader: QuestionReader) -> str:
        """Return the next question; Ctrl-C discards the line."""
        try:
            return reader.read()
        except KeyboardInterrupt:
            if reader.is_line_empty():
                self._screen.show("(Ctrl-D or /bye leaves the chat)")
            return ""

    def _handle(self, line: str) -> None:
        """Run the command, or answer the question, and report what fails."""
        try:
            if is_command(line):
                self._commands.run(line.strip())
            elif is_farewell(line):
                raise EOFError
            elif line.strip():
                self.answer(line.strip())
        except KeyboardInterrupt:  # Stopped the answer, not the program.
            pass
        except (EngineDeadError, EngineClosedError):
            raise
        except (RequestError, EngineError) as error:
            self._screen.show(f"aiomlc: {error}")

    def _answer_again(self) -> None:
        self._generate(self._session.answer_again)

    def _generate(self, answer: Callable[[], Awaitable[ResponseFigures]]) -> None:
        def stop() -> None:
            self._portal.start_task_soon(self._session.stop)

        with (
            quiet_interrupts(sys.stdin),
            handle_interrupt(stop) as was_interrupted,
            self._show_prefill(),
        ):
            future = self._portal.start_task_soon(answer)
            if was_interrupted():  # Possibly before there was a response to stop.
                stop()
            figures = future.result()

        self._screen.note(f"[{figures}]")
        if was_interrupted():
            raise KeyboardInterrupt

    @contextmanager
    def _show_prefill(self) -> Iterator[None]:
        status = self._portal.start_task_soon(self._session.show_prefill)
        try:
            yield
        finally:
            status.cancel()
