"""Doubles for tests of programs that use the library: an engine without a model."""

from __future__ import annotations

__all__ = ("FakeCore", "FakeEncoder", "fake_encoder", "fake_loader", "fake_model")

from collections.abc import Callable
from typing import Any

from anyio.lowlevel import checkpoint

from aiomlc.api.loader import Loader, Model
from aiomlc.config import EngineConfig, Mode
from aiomlc.runtime.core_protocol import Core
from aiomlc.runtime.fake_core import FakeCore
from aiomlc.runtime.fake_encoder import FakeEncoder, fake_encoder
from aiomlc.runtime.fake_model import fake_model
from aiomlc.runtime.loaded_model import LoadedEncoder, LoadedModel, LoadProgress


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
