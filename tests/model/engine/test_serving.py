"""Threads and pages of a real engine with a tiny model, after each way to end it."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after, lowlevel

from aiomlc import AsyncMLCEngine, EngineClosedError, EngineConfig, MLCEngine, RequestAbortedError
from tests.model.engine.native_threads import (
    has_native_threads,
    native_threads,
    stable_native_threads,
)

Directory = Callable[[str], Path]
MESSAGES = [{"role": "user", "content": "Say something long."}]


def slow_down(_tokens: Sequence[int], _logits: object) -> None:
    """Slow down each token, so that the tiny model does not finish while the test runs."""
    time.sleep(0.002)


LONG_REQUEST: dict[str, Any] = {
    "messages": MESSAGES,
    "max_tokens": 400,
    "temperature": 0,
    "stream": True,
    "logits_processors": [slow_down],
}


@pytest.fixture
def make_engine(model_cache: Path, tiny_directory: Directory) -> Callable[[], AsyncMLCEngine]:
    directory = tiny_directory("llama")
    config = EngineConfig(quantization="q4f16_1", num_threads=2)
    return lambda: AsyncMLCEngine(directory, engine_config=config)


MakeEngine = Callable[[], AsyncMLCEngine]


async def test_leaving_the_scope_ends_requests_and_kernel_threads(
    make_engine: MakeEngine,
) -> None:
    before = stable_native_threads()

    async with make_engine() as engine:
        during = stable_native_threads()
        stream = await engine.chat.completions.create(**LONG_REQUEST)
        await anext(stream)

    with fail_after(1), pytest.raises(EngineClosedError):
        async for _ in stream:
            pass
    assert during == before + 1
    assert has_native_threads(before)
    assert engine.statistics().num_running == 0
    assert engine.statistics().free_pages == engine.statistics().total_pages


async def test_exception_in_the_scope_is_raised_unchanged_and_leaks_nothing(
    make_engine: MakeEngine,
) -> None:
    before = stable_native_threads()

    async def fail() -> None:
        async with engine:
            stream = await engine.chat.completions.create(**LONG_REQUEST)
            await anext(stream)
            raise LookupError("deliberate")

    engine = make_engine()
    with pytest.raises(LookupError, match="deliberate"):
        await fail()

    assert has_native_threads(before)
    assert engine.statistics().free_pages == engine.statistics().total_pages


async def test_terminate_ends_waiting_readers_and_kernel_threads(
    make_engine: MakeEngine,
) -> None:
    before = stable_native_threads()
    engine = make_engine()
    stream = await engine.chat.completions.create(**LONG_REQUEST)
    await anext(stream)

    engine.terminate()

    with fail_after(1):
        with pytest.raises(EngineClosedError):
            async for _ in stream:
                pass
    with fail_after(10):  # The engine's task ends in the event loop.
        while native_threads() > before:
            await lowlevel.checkpoint()
    assert has_native_threads(before)
    with pytest.raises(EngineClosedError):
        await engine.chat.completions.create(messages=MESSAGES)


async def test_garbage_collected_stream_frees_its_pages(make_engine: MakeEngine) -> None:
    async with make_engine() as engine:
        stream = await engine.chat.completions.create(**LONG_REQUEST)
        await anext(stream)

        del stream
        gc.collect()

        with fail_after(1):
            while engine.statistics().free_pages < engine.statistics().total_pages:
                await lowlevel.checkpoint()
        assert engine.statistics().completion_tokens < 400


async def test_abort_ends_one_request(make_engine: MakeEngine) -> None:
    async with make_engine() as engine:
        stream = await engine.chat.completions.create(**LONG_REQUEST, request_id="aborted")
        other = await engine.chat.completions.create(**LONG_REQUEST, request_id="other")

        await engine.abort("aborted")

        with pytest.raises(RequestAbortedError):
            async for _ in stream:
                pass
        assert (await anext(other)).id == "other"


def test_sync_engine_leaves_no_thread(model_cache: Path, tiny_directory: Directory) -> None:
    gc.collect()
    before, native_before = set(threading.enumerate()), stable_native_threads()

    with MLCEngine(
        tiny_directory("llama"), engine_config=EngineConfig(quantization="q4f16_1", num_threads=2)
    ) as engine:
        stream = engine.chat.completions.create(**LONG_REQUEST)
        next(stream)

    # The threads were stopped; a worker thread of anyio takes a moment to end.
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert set(threading.enumerate()) <= before
    assert has_native_threads(native_before)


async def test_engines_of_one_model_are_independent(
    make_engine: MakeEngine,
) -> None:
    request: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 24, "temperature": 0}
    async with make_engine() as first, make_engine() as second:
        completions = [
            await engine.chat.completions.create(**request) for engine in (first, second, first)
        ]

    assert len({completion.choices[0].message.content for completion in completions}) == 1
