"""An async engine with JSON requests and one shared outbox for the JSON chunks of all requests."""

from __future__ import annotations

__all__ = ("JSONService",)

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Self, final

from anyio import AsyncContextManagerMixin, CancelScope, Event, Lock, create_task_group
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.json_ffi.chunks import (
    error_chunks,
    escape_surrogates,
    new_request_id,
    parse_json_request,
    with_required_fields,
)
from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.session.loader import Loader
from aiomlc.config import EngineConfig
from aiomlc.errors import AiomlcError, EngineClosedError
from aiomlc.validation.arguments import check_str

# The limit for all requests together. If the outbox is full, streams are not read, so that the
# engine's back-pressure pauses their requests.
_MAX_OUTBOX_CHUNKS = 256


@final
class JSONService(AsyncContextManagerMixin):
    """An engine that answers JSON requests with JSON chunks, and delivers errors as chunks.

    The chunks of every request end with one that has the usage, also if the request fails, the
    model is unloaded or the scope is left. `take` returns chunks until all are delivered.
    """

    def __init__(self, device: str = "auto", loader: Loader | None = None) -> None:
        self.last_error: str = ""  #: Why the last rejected request was rejected, or "".
        self._device = device
        self._loader = loader
        self._engine: AsyncMLCEngine | None = None
        self._loading = Lock()
        self._tasks: TaskGroup | None = None  # None outside of the scope.
        self._outbox = _Outbox()
        self._stopped = Event()

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        try:
            async with create_task_group() as self._tasks:
                try:
                    yield self
                finally:
                    with CancelScope(shield=True):
                        await self.stop()
                        await self.unload()
        finally:
            self._tasks = None
            self._outbox.close()

    async def load(self, config: EngineConfig) -> None:
        """Free the loaded model, if any, and load another.

        Raises:
            BadRequestError: If the configuration is invalid; the loaded model stays.
            ModelLoadError: If the model cannot be opened; no model is loaded then.
            EngineClosedError: If `stop` was called.
        """
        engine = AsyncMLCEngine(
            device=self._device,
            mode=config.mode or "local",
            engine_config=config,
            loader=self._loader,
        )
        async with self._loading:
            await self._unload()
            if self._stopped.is_set():
                raise EngineClosedError

            self._engine = engine
            try:
                await engine.reload()
            except BaseException:
                self._engine = None
                raise

    async def unload(self) -> None:
        """Abort all requests and free the model."""
        async with self._loading:
            await self._unload()

    async def reset(self) -> None:
        """Abort all requests, clear the prefix cache and reset the metrics.

        Raises:
            EngineClosedError: If no model is loaded.
        """
        await self._open_engine().reset()

    async def submit(self, request_json: str, request_id: str) -> bool:
        """Submit a request; return False if it is rejected, and deliver the error as chunks.

        Args:
            request_id: Overrides the `request_id` in the JSON unless empty. If neither specifies
                an id, the request gets a new one.
        """
        check_str("request_id", request_id)
        await checkpoint()
        default_id = request_id or new_request_id()
        try:
            request = parse_json_request(request_json, request_id or None, default_id)
            chunks = await self._open_engine().chat.completions.open(request)
        except AiomlcError as error:
            self.last_error = escape_surrogates(error)
            self._outbox.put(error_chunks(default_id, error))
            return False

        assert self._tasks is not None, "checked by _open_engine"
        self._tasks.start_soon(self._deliver, chunks)
        return True

    async def abort(self, request_id: str) -> None:
        """Abort a request, whose chunks end with the error. Unknown ids are ignored."""
        check_str("request_id", request_id)
        await checkpoint()
        if self._engine is not None:
            await self._engine.abort(request_id)

    async def take(self) -> str:
        """Wait for chunks and return all that are ready as a JSON list; "" means the end."""
        return await self._outbox.take()

    def take_nowait(self) -> str:
        """Return the chunks that are ready as a JSON list, or "" if there are none."""
        return self._outbox.take_nowait()

    async def stop(self) -> None:
        """Abort all requests and reject new ones from now on."""
        await checkpoint()
        self._stopped.set()
        self._outbox.lift_limit()
        if self._engine is not None:
            self._engine.terminate()

    async def wait_stopped(self) -> None:
        """Wait until `stop` is called."""
        await self._stopped.wait()

    async def _unload(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.unload()

    def _open_engine(self) -> AsyncMLCEngine:
        if self._tasks is None or self._stopped.is_set():
            raise EngineClosedError

        if self._engine is None:
            raise EngineClosedError("no model is loaded")

        return self._engine

    async def _deliver(self, chunks: ChatCompletionStream) -> None:
        async with chunks:
            try:
                while batch := await chunks.receive_batch():
                    self._outbox.put(batch)
                    await self._outbox.wait_for_room()
            except AiomlcError as error:
                self._outbox.put(error_chunks(chunks.request_id, error))


@final
class _Outbox:
    """A bounded queue of JSON chunks."""

    def __init__(self) -> None:
        self._chunks: deque[str] = deque()
        self._limit: int | None = _MAX_OUTBOX_CHUNKS
        self._is_closed = False
        self._changed = Event()

    def put(self, chunks: Iterable[ChatCompletionChunk]) -> None:
        """Add chunks, even beyond the limit."""
        self._chunks.extend(with_required_fields(chunk).model_dump_json() for chunk in chunks)
        self._notify()

    async def wait_for_room(self) -> None:
        """Wait until there are fewer chunks than the limit."""
        while self._limit is not None and len(self._chunks) >= self._limit:
            await self._changed.wait()

    async def take(self) -> str:
        """Wait for chunks and return all as a JSON list; "" once the outbox is closed and empty."""
        while not self._chunks and not self._is_closed:
            await self._changed.wait()

        return self.take_nowait()

    def take_nowait(self) -> str:
        """Return all chunks as a JSON list without waiting, or "" if there are none."""
        if not self._chunks:
            return ""

        text = f"[{','.join(self._chunks)}]"
        self._chunks.clear()
        self._notify()
        return text

    def lift_limit(self) -> None:
        """Remove the limit and wake the tasks that wait for room."""
        self._limit = None
        self._notify()

    def close(self) -> None:
        """Mark the outbox as complete; no more chunks may be added."""
        self._is_closed = True
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, Event()
        changed.set()
