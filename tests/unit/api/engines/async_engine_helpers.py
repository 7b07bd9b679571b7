"""Helpers for tests of `AsyncMLCEngine`."""

from __future__ import annotations

import anyio

from aiomlc import AsyncMLCEngine
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.testing import FakeCore, fake_model

HELLO = [{"role": "user", "content": "Hello"}]


class GatedLoader:
    """A loader that waits until `gate` is set, and counts its calls."""

    def __init__(self, core: FakeCore) -> None:
        self.core = core
        self.num_calls = 0
        self.gate = anyio.Event()

    async def __call__(self, model: object, **_: object) -> LoadedModel:
        self.num_calls += 1
        await self.gate.wait()
        return fake_model(self.core)


async def ask(engine: AsyncMLCEngine) -> str | None:
    """Return the reply to `HELLO`."""
    response = await engine.chat.completions.create(messages=HELLO)
    return response.choices[0].message.content
