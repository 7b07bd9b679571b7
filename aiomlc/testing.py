"""Test doubles for programs that use the library: engines without a model, and injected faults."""

from __future__ import annotations

__all__ = (
    "DEAD_END",
    "FakeCore",
    "FakeEncoder",
    "FakeSpeech",
    "Faults",
    "fake_encoder",
    "fake_loader",
    "fake_model",
    "fake_speech",
    "faulty_loader",
    "unread",
)

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Unpack

from anyio import to_thread
from anyio.lowlevel import checkpoint

from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.generation.options import ChatOptions
from aiomlc.api.protocol.message_params import MessageLike
from aiomlc.api.session.loader import Loader, ModelPath
from aiomlc.config import EngineConfig, Mode
from aiomlc.runtime.engine.core_protocol import Core
from aiomlc.runtime.loading.loaded_model import LoadedEncoder, LoadedModel
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.runtime.mock.core import FakeCore
from aiomlc.runtime.mock.encoder import FakeEncoder, fake_encoder
from aiomlc.runtime.mock.model import fake_model
from aiomlc.runtime.mock.speech import FakeSpeech, fake_speech
from aiomlc.runtime.native.faults import Faults

#: A `response_format` whose grammar allows a beginning and then no further token, so that the
#: request ends with `RequestFailedError`.
DEAD_END: Mapping[str, Any] = {
    "type": "grammar",
    "syntax": "lark",
    "definition": 'start: /[a-z]{1,9}/ "!" NOTHING\nNOTHING: /b/ & /c/',
}


@asynccontextmanager
async def unread(
    engine: AsyncMLCEngine, messages: list[MessageLike], **options: Unpack[ChatOptions]
) -> AsyncIterator[ChatCompletionStream]:
    """Open a chat completion stream that is never read, and close it when the scope ends."""
    async with await engine.chat.completions.create(
        messages=messages, stream=True, **options
    ) as stream:
        yield stream


def fake_loader(core: Core | FakeEncoder | FakeSpeech | None = None, **options: Any) -> Loader:  # noqa: ANN401
    """Return a `loader` that opens `core`; if it is None, a new `FakeCore(**options)`.

    With a `FakeEncoder`, the engine serves embeddings; with a `FakeSpeech`, transcriptions.
    """

    async def load(
        model: ModelPath | None,
        *,
        device: str,
        mode: Mode,
        engine_config: EngineConfig,
        on_progress: Callable[[LoadProgress], None] | None,
    ) -> LoadedModel | LoadedEncoder:
        await checkpoint()
        if on_progress is not None:
            on_progress(LoadProgress("load", 1.0, "nothing to load"))

        if isinstance(core, FakeEncoder):
            return fake_encoder(core, **options)

        if isinstance(core, FakeSpeech):
            return fake_speech(core)

        return fake_model(FakeCore(**options) if core is None else core)

    return load


def faulty_loader(*faults: Faults | None) -> Loader:
    """Return a `loader` of real decoders, the n-th of which has the n-th faults.

    Models that are loaded later (by `reload`, or by another engine with this loader) have none.
    """
    remaining = list(faults)

    async def load(
        model: ModelPath | None,
        *,
        device: str,
        mode: Mode,
        engine_config: EngineConfig,
        on_progress: Callable[[LoadProgress], None] | None,
    ) -> LoadedModel:
        load_model = await to_thread.run_sync(_import_load_model)
        return await load_model(
            model,
            device=device,
            mode=mode,
            engine_config=engine_config,
            on_progress=on_progress,
            faults=remaining.pop(0) if remaining else None,
        )

    return load


def _import_load_model() -> Callable[..., Awaitable[LoadedModel]]:
    # Imported on demand, because the import takes half a second.
    from aiomlc.runtime.loading.open_decoder import load_model

    return load_model
