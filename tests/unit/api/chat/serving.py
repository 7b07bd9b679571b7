"""An engine on a fake core, for tests of chat requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeCore, fake_loader

HELLO = [{"role": "user", "content": "Hello"}]


@asynccontextmanager
async def serve(core: FakeCore) -> AsyncIterator[AsyncMLCEngine]:
    """Open an engine on the core."""
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        yield engine
