"""An engine that reads requests as JSON text and has one outbox for the answers to all of them."""

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
    new_request_id,
    parse_json_request,
    readable,
)
from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.session.loader import Loader
from aiomlc.config import EngineConfig
from aiomlc.errors import AiomlcError, EngineClosedError
from aiomlc.validation.arguments import check_str

# Of all requests together. An answer waits here for its turn only: where nobody takes what is
# there, answers stay unread, and then the engine pauses them.
_MAX_WAITING_CHUNKS = 256


@final
class JSONService(AsyncContextManagerMixin):
    """Answer JSON text with JSON text; whatever goes wrong with a request is an answer, too.

    Every answer ends with a chunk that has the usage, also when the engine is unloaded or its
    scope is left; `take` gives what is there until the last of them is told.
    """

    def __init__(self, device: str = "auto", loader: Loader | None = None) -> None:
        self.last_error: str = ""  #: Why a request was refused, or "".
        self._device = device
        self._loader = loader
        self._engine: AsyncMLCEngine | None = None
        self._loading = Lock()
        self._tasks: TaskGroup | None = None  # None: the scope is not entered, or is left.
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
        """Free the model that is loaded, if there is one, and load another.

        Raises:
            BadRequestError: the configuration is refused; the loaded model stays.
            ModelLoadError: the model cannot be opened; none is loaded then.
            EngineClosedError: `stop` was called.
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
                raise EngineClosedError("the engine was terminated")

            self._engine = engine
            try:
                await engine.reload()
            except BaseException:
                self._engine = None
                raise

    async def unload(self) -> None:
        """End every request and free the model."""
        async with self._loading:
            await self._unload()

    async def reset(self) -> None:
        """End every request, empty the prefix cache and set the counters to 0.

        Raises:
            EngineClosedError: no model is loaded.
        """
        await self._open_engine().reset()

    async def submit(self, request_json: str, request_id: str) -> bool:
        """Begin to answer a request. Refused ones are answered too, and return False.

        An empty id is the request's own, or a new one.
        """
        check_str("request_id", request_id)
        await checkpoint()
        default_id = request_id or new_request_id()
        try:
            request = parse_json_request(request_json, request_id or None, default_id)
            chunks = await self._open_engine().chat.completions.open(request)
        except AiomlcError as error:
            self.last_error = readable(error)
            self._outbox.put(error_chunks(default_id, error))
            return False

        assert self._tasks is not None, "checked by _open_engine"
        self._tasks.start_soon(self._answer, chunks)
        return True

    async def abort(self, request_id: str) -> None:
        """End a request with an error chunk and a usage chunk. An unknown id does nothing."""
        check_str("request_id", request_id)
        await checkpoint()
        if self._engine is not None:
            await self._engine.abort(request_id)

    async def take(self) -> str:
        """Wait for chunks, and take all that are there as one JSON list; "" is the end."""
        return await self._outbox.take()

    def take_rest(self) -> str:
        """What nobody took before the scope was left, as one JSON list, or ""."""
        return self._outbox.take_rest()

    async def stop(self) -> None:
        """End every request, and refuse new ones from now on."""
        await checkpoint()
        self._stopped.set()
        self._outbox.lift_limit()
        if self._engine is not None:
            self._engine.terminate()

    async def wait_stopped(self) -> None:
        """Wait until somebody calls `stop`."""
        await self._stopped.wait()

    async def _unload(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.unload()

    def _open_engine(self) -> AsyncMLCEngine:
        if self._tasks is None or self._stopped.is_set():
            raise EngineClosedError("the engine was terminated")

        if self._engine is None:
            raise EngineClosedError("no model is loaded")

        return self._engine

    async def _answer(self, chunks: ChatCompletionStream) -> None:
        async with chunks:
            try:
                while batch := await chunks.receive_batch():
                    self._outbox.put(batch)
                    await self._outbox.wait_for_room()
            except AiomlcError as error:
                self._outbox.put(error_chunks(chunks.request_id, error))


@final
class _Outbox:
    """Chunks as JSON, in order."""

    def __init__(self) -> None:
        self._chunks: deque[str] = deque()
        self._limit: int | None = _MAX_WAITING_CHUNKS
        self._is_closed = False
        self._changed = Event()

    def put(self, chunks: Iterable[ChatCompletionChunk]) -> None:
        """Add chunks, above the limit if need be."""
        self._chunks.extend(chunk.model_dump_json() for chunk in chunks)
        self._tell()

    async def wait_for_room(self) -> None:
        """Wait until there are fewer than the limit."""
        while self._limit is not None and len(self._chunks) >= self._limit:
            await self._changed.wait()

    async def take(self) -> str:
        """Wait for chunks and take all; "" once it is closed and empty."""
        while not self._chunks and not self._is_closed:
            await self._changed.wait()

        return self.take_rest()

    def take_rest(self) -> str:
        """Take all chunks without waiting; "" is none."""
        if not self._chunks:
            return ""

        text = f"[{','.join(self._chunks)}]"
        self._chunks.clear()
        self._tell()
        return text

    def lift_limit(self) -> None:
        """Nobody waits for room from now on."""
        self._limit = None
        self._tell()

    def close(self) -> None:
        """Nothing more is put."""
        self._is_closed = True
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, Event()
        changed.set()
