"""Doubles for tests of programs that use the library: an engine without a model, and a real one
in which something goes wrong on purpose."""

from __future__ import annotations

__all__ = (
    "DEAD_END",
    "FakeCore",
    "FakeEncoder",
    "Faults",
    "fake_encoder",
    "fake_loader",
    "fake_model",
    "faulty_loader",
    "unread",
)

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Unpack

from anyio import to_thread
from anyio.lowlevel import checkpoint

from aiomlc.api.chat.resource import MessageLike
from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.generation.options import ChatOptions
from aiomlc.api.session.loader import Loader, Model
from aiomlc.config import EngineConfig, Mode
from aiomlc.runtime.engine.core_protocol import Core
from aiomlc.runtime.loading.loaded_model import LoadedEncoder, LoadedModel, LoadProgress
from aiomlc.runtime.mock.core import FakeCore
from aiomlc.runtime.mock.encoder import FakeEncoder, fake_encoder
from aiomlc.runtime.mock.model import fake_model
from aiomlc.runtime.native.faults import Faults

#: A `response_format` whose text begins, and then nothing can follow: it ends in
#: `RequestFailedError`.
DEAD_END: Mapping[str, Any] = {
    "type": "grammar",
    "syntax": "lark",
    "definition": 'start: /[a-z]{1,9}/ "!" NOTHING\nNOTHING: /b/ & /c/',
}


@asynccontextmanager
async def unread(
    engine: AsyncMLCEngine, messages: list[MessageLike], **options: Unpack[ChatOptions]
) -> AsyncIterator[ChatCompletionStream]:
    """A reader that never reads: its answer is open as long as the scope."""
    async with await engine.chat.completions.create(
        messages=messages, stream=True, **options
    ) as stream:
        yield stream


def fake_loader(core: Core | FakeEncoder | None = None, **options: Any) -> Loader:  # noqa: ANN401
    """A `loader` for an engine: it serves `core`, or a `FakeCore` made with `options`.

    A `FakeEncoder` makes it an engine of embeddings.
    """

    async def load(
        model: Model | None,
        *,
        device: str,
        mode: Mode,
        engine_config: EngineConfig,
        on_progress: Callable[[LoadProgress], None] | None,
    ) -> LoadedModel | LoadedEncoder:
        await checkpoint()
        if on_progress is not None:
            on_progress(LoadProgress("load", 1.0, "there is nothing to load"))

        if isinstance(core, FakeEncoder):
            return fake_encoder(core, **options)

        return fake_model(FakeCore(**options) if core is None else core)

    return load


def faulty_loader(*faults: Faults | None) -> Loader:
    """A `loader` of real models that generate, the n-th of which has the n-th faults.

    Those that are opened later (`reload`, another engine with the same loader) have none.
    """
    left = list(faults)

    async def load(
        model: Model | None,
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
            faults=left.pop(0) if left else None,
        )

    return load


def _import_load_model() -> Callable[..., Awaitable[LoadedModel]]:
    from aiomlc.runtime.loading.open_decoder import (
        load_model,  # It imports half a second of what only it needs.
    )

    return load_model
