"""`MLCEngine`: the async engine for blocking code, through a portal to an event loop's thread."""

from __future__ import annotations

__all__ = ("ChatCompletionIterator", "MLCEngine")

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, final, overload

from anyio import CancelScope
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.lowlevel import checkpoint

from aiomlc.api.async_engine import AsyncMLCEngine, Loader, Model
from aiomlc.api.chat import ChatOptions, MessageLike
from aiomlc.api.chat_stream import ChatCompletionStream
from aiomlc.api.metrics import EngineMetrics
from aiomlc.api.protocol.chat import ChatCompletion, ChatCompletionChunk
from aiomlc.config import EngineConfig, Mode
from aiomlc.errors import EngineClosedError, EngineDeadError
from aiomlc.runtime.core_protocol import CoreStatistics
from aiomlc.runtime.loaded_model import LoadProgress

_T = TypeVar("_T")


@final
class MLCEngine:
    """Serve one model to threads; the requests of several are batched together.

    The constructor opens the model and blocks until it is ready. Use it as a context manager, or
    call `terminate`. `on_progress` is called in the engine's own thread.

    Raises:
        BadRequestError: an argument is invalid or not supported; `param` names it.
        ModelLoadError: the model cannot be opened.
    """

    def __init__(  # noqa: PLR0913 - upstream's signature.
        self,
        model: Model | None = None,
        device: str = "auto",
        *,
        model_lib: Model | None = None,
        mode: Mode = "local",
        engine_config: EngineConfig | None = None,
        enable_tracing: bool = False,
        on_progress: Callable[[LoadProgress], None] | None = None,
        loader: Loader | None = None,
    ) -> None:
        self._portal: _Portal | None = None
        self._engine = AsyncMLCEngine(
            model,
            device,
            model_lib=model_lib,
            mode=mode,
            engine_config=engine_config,
            enable_tracing=enable_tracing,
            on_progress=on_progress,
            loader=loader,
        )
        self._portal = _Portal(self._engine)
        self.engine_config = self._engine.engine_config
        self.chat = Chat(self._engine, self._portal)

    def __repr__(self) -> str:
        return f"<MLCEngine {self.engine_config.model or 'bundled model'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.terminate()

    def __del__(self) -> None:
        portal = getattr(self, "_portal", None)
        if portal is not None:
            portal.close_quietly()

    def abort(self, request_id: str) -> None:
        """End a request; its reader gets `RequestAbortedError`. An unknown id does nothing."""
        self._open_portal().call(self._engine.abort, request_id)

    def metrics(self) -> EngineMetrics:
        """The engine's counters under upstream's names."""
        return self._open_portal().call(self._engine.metrics)

    def statistics(self) -> CoreStatistics:
        """A snapshot of the engine's counters."""
        return self._engine.statistics()

    def terminate(self) -> None:
        """End every request and the engine's thread, and free the model. Idempotent.

        Raises:
            EngineDeadError: the engine had failed before.
        """
        self._open_portal().close()

    def _open_portal(self) -> _Portal:
        assert self._portal is not None, "set by the constructor"
        return self._portal


@final
class Chat:
    """`engine.chat`."""

    def __init__(self, engine: AsyncMLCEngine, portal: _Portal) -> None:
        self.completions = Completions(engine, portal)


@final
class Completions:
    """`engine.chat.completions`."""

    def __init__(self, engine: AsyncMLCEngine, portal: _Portal) -> None:
        self._engine = engine
        self._portal = portal

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: Literal[True],
        **options: Unpack[ChatOptions],
    ) -> ChatCompletionIterator: ...

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: Literal[False] | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion: ...

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool | None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion | ChatCompletionIterator: ...

    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion | ChatCompletionIterator:
        """Answer `messages`, as `AsyncCompletions.create` does and with its errors."""
        create = partial(
            self._engine.chat.completions.create, messages=messages, stream=stream, **options
        )
        answer = self._portal.call(create)
        if isinstance(answer, ChatCompletionStream):
            return ChatCompletionIterator(answer, self._portal)

        return answer


@final
class ChatCompletionIterator:
    """The chunks of one answer, for one thread. Leaving it early cancels the request."""

    def __init__(self, stream: ChatCompletionStream, portal: _Portal) -> None:
        self._stream = stream
        self._portal = portal
        self._ready: deque[ChatCompletionChunk] = deque()

    @property
    def request_id(self) -> str:
        """The id of every chunk, and what `abort` takes."""
        return self._stream.request_id

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChatCompletionChunk:
        if not self._ready:
            self._ready.extend(self._receive())

        if not self._ready:
            raise StopIteration

        return self._ready.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is unfinished."""
        self._ready.clear()
        self._portal.call_if_open(self._stream.aclose)

    def _receive(self) -> list[ChatCompletionChunk]:
        # A trip through the portal costs as much as many chunks, so it fetches all there are.
        try:
            return self._portal.call(self._stream.receive_batch)
        except KeyboardInterrupt:
            self.close()
            raise


class _Task(Generic[_T]):
    """A call in the engine's thread that can be cancelled before it is known to have started."""

    def __init__(
        self, function: Callable[..., Coroutine[Any, Any, _T]], args: tuple[object, ...]
    ) -> None:
        self._function = function
        self._args = args
        self._scope: CancelScope | None = None

    async def run(self) -> _T:
        with CancelScope() as self._scope:
            return await self._function(*self._args)

        raise EngineClosedError("the caller was interrupted")

    async def cancel(self) -> None:
        """End `run`, which is under way by the time that this gets its turn."""
        await checkpoint()
        if self._scope is not None:
            self._scope.cancel()


@final
class _Portal:
    """The event loop's thread that hosts one engine."""

    def __init__(self, engine: AsyncMLCEngine) -> None:
        self._closing = threading.Lock()
        with ExitStack() as stack:
            self._portal: BlockingPortal = stack.enter_context(
                start_blocking_portal(name="aiomlc engine")
            )
            stack.enter_context(self._portal.wrap_async_context_manager(engine))
            self._stack: ExitStack | None = stack.pop_all()

        # For a program that forgets `terminate`: no native loop may outlive the interpreter.
        self._exit_hook = partial(_close_if_alive, weakref.ref(self))
        atexit.register(self._exit_hook)

    def call(self, function: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> _T:
        """Run a function in the engine's thread. An interrupted caller cancels it."""
        task = _Task(function, args)
        try:
            return self._start(task.run).result()
        except CancelledError as error:
            raise EngineClosedError("the engine was terminated") from error
        except KeyboardInterrupt:
            # Wherever that hit this thread, perhaps while the task was being started.
            with suppress(EngineClosedError):
                self._start(task.cancel)
            raise

    def call_if_open(self, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a function that has nothing to do once the engine is closed."""
        with suppress(EngineClosedError):
            self.call(function)

    def _start(self, function: Callable[[], Coroutine[Any, Any, _T]]) -> Future[_T]:
        try:
            return self._portal.start_task_soon(function)
        except RuntimeError as error:
            raise EngineClosedError("the engine was terminated") from error

    def close(self) -> None:
        """Leave the engine's scope and end its thread. The second caller waits for the first."""
        with self._closing:
            stack, self._stack = self._stack, None
            if stack is not None:
                atexit.unregister(self._exit_hook)
                stack.close()

    def close_quietly(self) -> None:
        """Close where nobody could take the engine's own failure."""
        with suppress(EngineDeadError):
            self.close()


def _close_if_alive(reference: weakref.ref[_Portal]) -> None:
    portal = reference()
    if portal is not None:
        portal.close_quietly()
