"""A real engine over a tiny model: what it leaves behind, whichever way it ends."""

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

Directory = Callable[[str], Path]
MESSAGES = [{"role": "user", "content": "Say something long."}]


def take_time(_tokens: Sequence[int], _logits: object) -> None:
    """Without it the tiny model has said all before a slow test goes on."""
    time.sleep(0.002)


LONG: dict[str, Any] = {
    "messages": MESSAGES,
    "max_tokens": 400,
    "temperature": 0,
    "stream": True,
    "logits_processors": [take_time],
}


def native_threads() -> int:
    """Threads of this process that Python did not start: the kernels' workers."""
    tasks = len(list(Path("/proc/self/task").iterdir()))
    return tasks - len(threading.enumerate())


def native_threads_at_rest() -> int:
    """Their number without those of an earlier test that are about to end."""
    counts = []
    for _ in range(20):
        counts.append(native_threads())
        time.sleep(0.001)
    return min(counts)


def has_native_threads(count: int) -> bool:
    """Whether so many remain. One that has ended stays in the system's list for a moment."""
    deadline = time.monotonic() + 5
    while native_threads() != count and time.monotonic() < deadline:
        time.sleep(0.001)
    return native_threads() == count


@pytest.fixture
def make_engine(model_cache: Path, tiny_directory: Directory) -> Callable[[], AsyncMLCEngine]:
    directory = tiny_directory("llama")
    config = EngineConfig(quantization="q4f16_1", num_threads=2)
    return lambda: AsyncMLCEngine(directory, engine_config=config)


MakeEngine = Callable[[], AsyncMLCEngine]


async def test_leaving_the_scope_ends_the_requests_and_the_kernels_threads(
    make_engine: MakeEngine,
) -> None:
    before = native_threads_at_rest()

    async with make_engine() as engine:
        during = native_threads_at_rest()
        stream = await engine.chat.completions.create(**LONG)
        await anext(stream)

    with fail_after(1), pytest.raises(EngineClosedError):
        async for _ in stream:
            pass
    assert during == before + 1
    assert has_native_threads(before)
    assert engine.statistics().num_running == 0
    assert engine.statistics().free_pages == engine.statistics().total_pages


async def test_an_exception_in_the_scope_comes_out_alone_and_leaves_nothing(
    make_engine: MakeEngine,
) -> None:
    before = native_threads_at_rest()

    async def fail() -> None:
        async with engine:
            stream = await engine.chat.completions.create(**LONG)
            await anext(stream)
            raise LookupError("mine")

    engine = make_engine()
    with pytest.raises(LookupError, match="mine"):
        await fail()

    assert has_native_threads(before)
    assert engine.statistics().free_pages == engine.statistics().total_pages


async def test_terminate_ends_the_waiting_reader_and_the_kernels_threads(
    make_engine: MakeEngine,
) -> None:
    before = native_threads_at_rest()
    engine = make_engine()
    stream = await engine.chat.completions.create(**LONG)
    await anext(stream)

    engine.terminate()

    with fail_after(1):
        with pytest.raises(EngineClosedError):
            async for _ in stream:
                pass
    with fail_after(10):  # The engine's own task ends on the loop.
        while native_threads() > before:
            await lowlevel.checkpoint()
    assert has_native_threads(before)
    with pytest.raises(EngineClosedError):
        await engine.chat.completions.create(messages=MESSAGES)


async def test_an_abandoned_stream_frees_its_pages(make_engine: MakeEngine) -> None:
    async with make_engine() as engine:
        stream = await engine.chat.completions.create(**LONG)
        await anext(stream)

        del stream
        gc.collect()

        with fail_after(1):
            while engine.statistics().free_pages < engine.statistics().total_pages:
                await lowlevel.checkpoint()
        assert engine.statistics().completion_tokens < 400


async def test_abort_ends_one_request_for_its_reader(make_engine: MakeEngine) -> None:
    async with make_engine() as engine:
        stream = await engine.chat.completions.create(**LONG, request_id="mine")
        other = await engine.chat.completions.create(**LONG, request_id="other")

        await engine.abort("mine")

        with pytest.raises(RequestAbortedError):
            async for _ in stream:
                pass
        assert (await anext(other)).id == "other"


def test_the_blocking_engine_leaves_no_thread(model_cache: Path, tiny_directory: Directory) -> None:
    gc.collect()
    before, native_before = set(threading.enumerate()), native_threads_at_rest()

    with MLCEngine(
        tiny_directory("llama"), engine_config=EngineConfig(quantization="q4f16_1", num_threads=2)
    ) as engine:
        stream = engine.chat.completions.create(**LONG)
        next(stream)

    # Told to end by then: a worker that anyio lent takes a moment to do so.
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert set(threading.enumerate()) <= before
    assert has_native_threads(native_before)


async def test_two_engines_of_one_model_do_not_disturb_each_other(
    make_engine: MakeEngine,
) -> None:
    request: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 24, "temperature": 0}
    async with make_engine() as first, make_engine() as second:
        answers = [
            await engine.chat.completions.create(**request) for engine in (first, second, first)
        ]

    assert len({answer.choices[0].message.content for answer in answers}) == 1
