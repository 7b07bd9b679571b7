"""`JSONFFIEngine`: chat completions with JSON requests, JSON chunks, and errors as chunks."""

from __future__ import annotations

__all__ = ("JSONFFIEngine", "JSONStream")

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, Unpack, final

from aiomlc.api.engines.mlc_engine import MLCEngine
from aiomlc.api.engines.sync_resources import ChatCompletionIterator
from aiomlc.api.generation.options import ChatOptions
from aiomlc.api.json_ffi.chunks import (
    asks_for_usage,
    check_stream,
    error_chunks,
    new_request_id,
    parse_json_request,
    with_required_fields,
)
from aiomlc.api.observability.metrics import EngineMetrics
from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.protocol.message_params import MessageLike
from aiomlc.api.session.legacy_options import LegacyOptions
from aiomlc.api.session.loader import Loader, ModelPath
from aiomlc.config import EngineConfig, Mode
from aiomlc.devices import Device
from aiomlc.errors import AiomlcError
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.runtime.tokenization.tokenizer import Tokenizer


@final
class JSONFFIEngine:
    """An engine for one model whose requests and chunks are JSON. Every completion is streamed.

    Every delta has the role, and `system_fingerprint` is "", as MLC LLM's clients require. An
    error of a request is a chunk with the finish reason "error" and the message as content.
    Every stream ends with a chunk that has the usage, also after an error.

    Raises:
        BadRequestError: If a constructor argument is invalid or not supported; `param` names it.
        ModelLoadError: If the model cannot be opened.
    """

    def __init__(  # noqa: PLR0913 - MLC LLM's signature.
        self,
        model: ModelPath | None = None,
        device: Device = "auto",
        *,
        model_lib: ModelPath | None = None,
        mode: Mode = "local",
        engine_config: EngineConfig | None = None,
        on_progress: Callable[[LoadProgress], None] | None = None,
        loader: Loader | None = None,
        **legacy: Unpack[LegacyOptions],
    ) -> None:
        self._engine = MLCEngine(
            model,
            device,
            model_lib=model_lib,
            mode=mode,
            engine_config=engine_config,
            on_progress=on_progress,
            loader=loader,
            **legacy,
        )
        self.chat: JSONFFIChat = JSONFFIChat(self._engine)

    def __repr__(self) -> str:
        return f"<JSONFFIEngine {self.engine_config.model or 'bundled model'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.terminate()

    @property
    def engine_config(self) -> EngineConfig:
        """The configuration, as of `AsyncMLCEngine.engine_config`."""
        return self._engine.engine_config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self._engine.tokenizer

    def chat_completion(self, request_json: str, request_id: str | None = None) -> JSONStream:
        """Submit a JSON chat request and return its stream of JSON lists of chunks."""
        return JSONStream(_ChunkBatches(self._engine, request_json, request_id))

    def abort(self, request_id: str) -> None:
        """Abort a request, whose stream ends with an error chunk. Unknown ids are ignored."""
        self._engine.abort(request_id)

    def metrics(self) -> EngineMetrics:
        """Return the engine's metrics under MLC LLM's names."""
        return self._engine.metrics()

    def terminate(self) -> None:
        """Abort all requests and free the model. Idempotent.

        Raises:
            EngineDeadError: If the engine had failed.
        """
        self._engine.terminate()

    # Private methods that MLC LLM's tests and programs call.

    def _raw_chat_completion(
        self, request_json_str: str, include_usage: bool, request_id: str
    ) -> Iterator[ChatCompletionChunk]:
        batches = _ChunkBatches(self._engine, request_json_str, request_id)
        return _iterate_chunks(batches, include_usage=include_usage)

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
        """Stream the next message of a chat, with the usage if `stream_options` asks for it.

        All errors except those below are delivered as chunks.

        Raises:
            BadRequestError: If `stream` is false.
        """
        check_stream(stream)
        fields = {"messages": messages, "stream": stream, **options}
        batches = _ChunkBatches(self._engine, fields, None)
        return _iterate_chunks(batches, include_usage=asks_for_usage(options))


@final
class JSONStream:
    """The stream of one request, as an iterator and a context manager for one thread.

    Yields strings, each the JSON list of the chunks that were ready. Errors of the request are
    yielded as chunks. Leaving the scope or `close` cancels the request unless it has finished.
    """

    def __init__(self, batches: _ChunkBatches) -> None:
        self.request_id: str = batches.request_id  #: The id of every chunk; `abort` takes it.
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        batch = self._batches.receive_batch()
        if not batch:
            raise StopIteration

        return f"[{','.join(chunk.model_dump_json() for chunk in batch)}]"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the stream and cancel the request unless it has finished."""
        self._batches.close()


@final
class _ChunkBatches:
    """The batches of one request's chunks; an error of the request is the last batch."""

    def __init__(
        self, engine: MLCEngine, request: str | Mapping[str, Any], request_id: str | None
    ) -> None:
        self.request_id: str = request_id if isinstance(request_id, str) else ""
        self.request_id = self.request_id or new_request_id()
        self._stream: ChatCompletionIterator | None = None
        self._error_chunks: list[ChatCompletionChunk] = []
        try:
            parsed = parse_json_request(request, request_id, self.request_id)
            self.request_id = parsed.request_id or self.request_id
            self._stream = engine.chat.completions.open(parsed)
        except AiomlcError as error:
            self._error_chunks = error_chunks(self.request_id, error)

    def receive_batch(self) -> list[ChatCompletionChunk]:
        """Wait for a chunk and return all that are ready; an empty list means the end."""
        return [with_required_fields(chunk) for chunk in self._receive()]

    def _receive(self) -> list[ChatCompletionChunk]:
        if self._stream is not None:
            try:
                return self._stream.receive_batch()
            except AiomlcError as error:
                self._stream = None
                return error_chunks(self.request_id, error)

        chunks, self._error_chunks = self._error_chunks, []
        return chunks

    def close(self) -> None:
        """Close the stream and cancel the request unless it has finished."""
        self._error_chunks = []
        if self._stream is not None:
            self._stream.close()


def _iterate_chunks(
    batches: _ChunkBatches, *, include_usage: bool
) -> Iterator[ChatCompletionChunk]:
    try:
        while batch := batches.receive_batch():
            yield from (chunk for chunk in batch if include_usage or chunk.usage is None)
    finally:
        batches.close()
