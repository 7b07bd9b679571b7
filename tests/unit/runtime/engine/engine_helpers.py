"""Helpers for tests of engines."""

from __future__ import annotations

__all__ = ("LONG_REPLY", "OPTIONS", "one_step_core", "read", "read_one", "wait_until_free")

from anyio.lowlevel import checkpoint

from aiomlc.runtime.engine.stream import Delta, DeltaStream
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore

OPTIONS = SequenceOptions()
LONG_REPLY = "a" * 10_000


def one_step_core() -> FakeCore:
    """Return a core that generates one character of a long reply and then waits."""
    core = FakeCore([LONG_REPLY], hand_stepped=True)
    core.allow(1)
    return core


async def read(stream: DeltaStream) -> str:
    """Read a stream to its end and return its text."""
    async with stream:
        return "".join([delta.text async for delta in stream])


async def read_one(stream: DeltaStream) -> Delta:
    """Return the next delta of a stream."""
    return await stream.__anext__()


async def wait_until_free(core: FakeCore) -> None:
    """Wait until the core has released every sequence."""
    while core.statistics().num_running:
        await checkpoint()
