"""A terminal chat on a fake core, with its captured output."""

from __future__ import annotations

__all__ = ("FakeReader", "FakeTerminal", "Scene", "make_scene")

import io
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.lowlevel import checkpoint

from aiomlc import AsyncMLCEngine
from aiomlc.cli.chat.session import ChatSession
from aiomlc.cli.chat.terminal_chat import TerminalChat
from aiomlc.cli.terminal.screen import Screen
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.sampling_params import SamplingParams
from aiomlc.testing import FakeCore, fake_model


@final
class FakeTerminal(io.StringIO):
    """A stream that sends SIGINT (Ctrl-C) when its output ends with a given string."""

    def __init__(self, *, interrupt_after: str | None = None, is_terminal: bool = False) -> None:
        super().__init__()
        self._interrupt_after = interrupt_after
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        if self._interrupt_after is not None and self.getvalue().endswith(self._interrupt_after):
            self._interrupt_after = None
            os.kill(os.getpid(), signal.SIGINT)
        return count


@final
class FakeReader:
    """A reader of scripted questions; an item that is an exception is raised, then EOFError."""

    def __init__(self, *script: str | type[BaseException]) -> None:
        self._script = iter(script)

    def read(self) -> str:
        line = next(self._script, EOFError)
        if isinstance(line, str):
            return line
        raise line

    def is_line_empty(self) -> bool:
        return True


@final
class Scene:
    """A chat on a fake core; `output` and `notes` may be replaced before the first question."""

    def __init__(self, core: FakeCore, engine: AsyncMLCEngine, portal: BlockingPortal) -> None:
        self.core = core
        self.engine = engine
        self.output = FakeTerminal()
        self.notes = FakeTerminal()
        self._portal = portal
        self._session: ChatSession | None = None
        self._options: dict[str, Any] = {"options": {"max_tokens": 50}}

    def configure(self, *, system: str | None = None) -> None:
        """Set the system message, and remove the limit of tokens."""
        self._options = {"system": system}

    @property
    def session(self) -> ChatSession:
        if self._session is None:
            screen = Screen(self.output, self.notes)
            self._session = ChatSession(self.engine, screen, **self._options)
        return self._session

    @property
    def contents(self) -> list[str]:
        """The contents of the messages that the model sees."""
        return [message["content"] for message in self.session.conversation.messages]

    @property
    def chat(self) -> TerminalChat:
        screen = Screen(self.output, self.notes)
        return TerminalChat(
            self._portal,
            self.session,
            screen,
            statistics=self.engine.statistics,
            describe_model=lambda: "a fake model",
            defaults=SamplingParams(temperature=0.7),
        )

    def type(self, *script: str | type[BaseException]) -> None:
        """Run the chat with these questions and commands."""
        self.chat.run(FakeReader(*script))


@contextmanager
def make_scene(
    core: FakeCore | None = None, *, context_window: int = 1024, model: LoadedModel | None = None
) -> Iterator[Scene]:
    """Open an engine with a fake core, or a model that has it."""
    core = core or FakeCore()

    async def load(*_: object, **__: object) -> LoadedModel:
        await checkpoint()
        return model or fake_model(core, context_window=context_window)

    engine = AsyncMLCEngine(loader=load)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(engine):
        yield Scene(core, engine, portal)
