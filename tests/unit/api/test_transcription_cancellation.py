"""A transcription that is cancelled at any of its suspensions leaves nothing in the engine."""

from __future__ import annotations

import asyncio  # noqa: TID251 - its own cancellation is tested.
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

import numpy as np
import pytest
from anyio import CancelScope, fail_after
from anyio.lowlevel import checkpoint

from aiomlc import AsyncMLCEngine
from aiomlc.runtime.loading.loaded_model import LoadedEncoder
from aiomlc.runtime.mock.speech import fake_speech
from aiomlc.runtime.speech.transcriber import Transcriber
from aiomlc.testing import FakeSpeech
from tests.audio_files import wav_bytes

pytestmark = pytest.mark.timeout(60)
FILE = wav_bytes(np.zeros(48_000, np.float32))  # Two windows.
Call = Callable[[AsyncMLCEngine], Awaitable[str]]


class AtSuspension:
    """Awaits something, and calls a function at one of its suspensions."""

    def __init__(self, inner: Awaitable[Any], number: int, function: Callable[[], object]) -> None:
        self._inner = inner
        self._number = number
        self._function = function

    def __await__(self) -> Generator[Any, Any, Any]:
        generator = self._inner.__await__()
        resume: Callable[[], Any] = partial(generator.send, None)
        number = 0
        while True:
            try:
                yielded = resume()
            except StopIteration as end:
                return end.value

            number += 1
            if number == self._number:
                self._function()
            try:
                sent = yield yielded
                resume = partial(generator.send, sent)
            except BaseException as error:  # noqa: BLE001 - the inner one handles it.
                resume = partial(generator.throw, error)


async def transcribe(engine: AsyncMLCEngine) -> str:
    return (await engine.transcribe(FILE)).text


async def stream(engine: AsyncMLCEngine) -> str:
    async with engine.stream_transcription(FILE) as segments:
        return "".join([segment.text async for segment in segments])


async def cancel_by_scope(call: Awaitable[str], number: int) -> str | None:
    with CancelScope() as scope:
        return str(await AtSuspension(call, number, scope.cancel))
    return None


async def cancel_task(call: Awaitable[str], number: int) -> str | None:
    async def run() -> str:
        return str(await AtSuspension(call, number, lambda: task.cancel()))

    task = asyncio.create_task(run())
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def check_every_suspension(
    call: Call, cancel: Callable[[Awaitable[str], int], Awaitable[str | None]]
) -> None:
    opened = fake_speech(FakeSpeech(["ab"] * 2000, num_slots=1))
    assert isinstance(opened.model, Transcriber)

    async def load(*_: object, **_settings: object) -> LoadedEncoder:
        await checkpoint()
        return opened

    async with AsyncMLCEngine(loader=load) as engine:
        whole = await call(engine)
        number, text = 0, None
        while text is None:
            number += 1
            text = await cancel(call(engine), number)
            assert engine.statistics().num_running == 0
            assert opened.model.batcher.num_free_slots == 1
        assert text == whole == "abab"
        assert number > 20
        with fail_after(10):
            assert await call(engine) == whole
            assert await engine.drain()


@pytest.mark.parametrize("call", [transcribe, stream])
async def test_a_cancelled_scope_leaves_nothing(call: Call) -> None:
    await check_every_suspension(call, cancel_by_scope)


@pytest.mark.parametrize("call", [transcribe, stream])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_asyncio_cancels_leaves_nothing(call: Call) -> None:
    await check_every_suspension(call, cancel_task)
