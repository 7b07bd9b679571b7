"""`JSONFFIEngine`: requests as JSON text, answers as JSON text, errors as chunks."""

from __future__ import annotations

__all__ = ("JSONFFIEngine", "JSONStream")

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, Unpack, final

from aiomlc.api.chat.resource import MessageLike
from aiomlc.api.engines.sync_engine import ChatCompletionIterator, MLCEngine
from aiomlc.api.generation.options import ChatOptions
from aiomlc.api.json_ffi.chunks import (
    asks_for_usage,
    check_stream,
    error_chunks,
    new_request_id,
    parse_json_request,
)
from aiomlc.api.observability.metrics import EngineMetrics
from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.session.legacy_options import LegacyOptions
from aiomlc.api.session.loader import Loader, Model
from aiomlc.config import EngineConfig, Mode
from aiomlc.devices import Device
from aiomlc.errors import AiomlcError
from aiomlc.runtime.loading.loaded_model import LoadProgress


@final
class JSONFFIEngine:
    """Serve one model to code that speaks JSON. Every answer is a stream.

    An error, of whatever kind, is a chunk with the finish reason `error` and its text as content;
    a chunk with the usage ends every answer, also that one. So a reader needs one loop.

    Raises:
        BadRequestError: a constructor argument is invalid or not supported; `param` names it.
        ModelLoadError: the model cannot be opened.
    """

    def __init__(  # noqa: PLR0913 - upstream's signature.
        self,
        model: Model | None = None,
        device: Device = "auto",
        *,
        model_lib: Model | None = None,
        mode: Mode = "local",
        engine_config: EngineConfig | None = None,
        on_progress: Callable[[LoadProgress], None] | None = None,
        loader: Loader | None = None,
        **former: Unpack[LegacyOptions],
    ) -> None:
        self._engine = MLCEngine(
            model,
            device,
            model_lib=model_lib,
            mode=mode,
            engine_config=engine_config,
            on_progress=on_progress,
            loader=loader,
            **former,
        )
        self.chat: JSONFFIChat = JSONFFIChat(self._engine)

    def __repr__(self) -> str:
        return f"<JSONFFIEngine {self.engine_config.model or 'bundled model'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.terminate()

    @property
    def engine_config(self) -> EngineConfig:
        """The configuration, as of `AsyncMLCEngine.engine_config`."""
        return self._engine.engine_config

    def chat_completion(self, request_json: str, request_id: str | None = None) -> JSONStream:
        """Answer a request; each string is the JSON list of the chunks that came together."""
        return JSONStream(_Chunks(self._engine, request_json, request_id))

    def abort(self, request_id: str) -> None:
        """End a request; its reader gets the error chunk. An unknown id does nothing."""
        self._engine.abort(request_id)

    def metrics(self) -> EngineMetrics:
        """The engine's counters under upstream's names."""
        return self._engine.metrics()

    def terminate(self) -> None:
        """End every request and free the model. Idempotent.

        Raises:
            EngineDeadError: the engine had failed before.
        """
        self._engine.terminate()

    # Under the names that upstream's own tests and programs know.

    def _raw_chat_completion(
        self, request_json_str: str, include_usage: bool, request_id: str
    ) -> Iterator[ChatCompletionChunk]:
        chunks = _Chunks(self._engine, request_json_str, request_id)
        return _flatten(chunks, include_usage=include_usage)

    def _test_reload(self) -> None:
        self._engine.reload()

    def _test_reset(self) -> None:
        self._engine.reset()

    def _test_unload(self) -> None:
        self._engine.unload()


@final
class JSONFFIChat:
    """`engine.chat`."""

    def __init__(self, engine: MLCEngine) -> None:
        self.completions: JSONFFICompletions = JSONFFICompletions(engine)


@final
class JSONFFICompletions:
    """`engine.chat.completions`."""

    def __init__(self, engine: MLCEngine) -> None:
        self._engine = engine

    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool = True,
        **options: Unpack[ChatOptions],
    ) -> Iterator[ChatCompletionChunk]:
        """Stream the answer to `messages`; the usage is in it if `stream_options` asks for it.

        Raises:
            BadRequestError: `stream` is false. Every other error is a chunk.
        """
        check_stream(stream)
        fields = {"messages": messages, "stream": stream, **options}
        return _flatten(_Chunks(self._engine, fields, None), include_usage=asks_for_usage(options))


@final
class JSONStream:
    """One answer as JSON text, for one thread. Leaving it early cancels the request."""

    def __init__(self, chunks: _Chunks) -> None:
        self.request_id: str = chunks.request_id  #: The id of every chunk, and what `abort` takes.
        self._chunks = chunks

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        batch = self._chunks.receive_batch()
        if not batch:
            raise StopIteration

        return f"[{','.join(chunk.model_dump_json() for chunk in batch)}]"

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
        self._chunks.close()


@final
class _Chunks:
    """The chunks of one answer in batches, with its error, if there is one, among them."""

    def __init__(
        self, engine: MLCEngine, request: str | Mapping[str, Any], request_id: str | None
    ) -> None:
        self.request_id: str = request_id if isinstance(request_id, str) else ""
        self.request_id = self.request_id or new_request_id()
        self._stream: ChatCompletionIterator | None = None
        self._error: list[ChatCompletionChunk] = []
        try:
            parsed = parse_json_request(request, request_id, self.request_id)
            self.request_id = parsed.request_id or self.request_id
            self._stream = engine.chat.completions.open(parsed)
        except AiomlcError as error:
            self._error = error_chunks(self.request_id, error)

    def receive_batch(self) -> list[ChatCompletionChunk]:
        """Wait for a chunk, and take all that are there; an empty list is the end."""
        if self._stream is not None:
            try:
                return self._stream.receive_batch()
            except AiomlcError as error:
                self._stream = None
                return error_chunks(self.request_id, error)

        chunks, self._error = self._error, []
        return chunks

    def close(self) -> None:
        """Cancel what is unfinished."""
        self._error = []
        if self._stream is not None:
            self._stream.close()


def _flatten(chunks: _Chunks, *, include_usage: bool) -> Iterator[ChatCompletionChunk]:
    try:
        while batch := chunks.receive_batch():
            yield from (chunk for chunk in batch if include_usage or chunk.usage is None)
    finally:
        chunks.close()
