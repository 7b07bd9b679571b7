"""Tests of time limits, priorities, a full queue and slow readers."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import fail_after, wait_all_tasks_blocked

from aiomlc import (
    AiomlcError,
    AsyncMLCEngine,
    BadRequestError,
    ChatCompletionChunk,
    ChatCompletionStream,
    DeadlineExceededError,
    EngineConfig,
    EngineOverloadedError,
)
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
LIMITS = ("timeout", "first_token_timeout", "inter_token_timeout")


async def read(stream: ChatCompletionStream, chunks: list[ChatCompletionChunk]) -> None:
    async for chunk in stream:
        chunks.append(chunk)  # noqa: PERF401 - keeps what was read before an error.


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_time_limit_is_raised_after_the_generated_text(limit: str) -> None:
    core = FakeCore(["Hello!"], timeouts={1: limit})
    chunks: list[ChatCompletionChunk] = []
    with fail_after(10):
        async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
            stream = await engine.chat.completions.create(
                messages=HELLO, stream=True, request_id="r", extra_body={limit: 1.5}
            )
            with pytest.raises(DeadlineExceededError) as caught:
                await read(stream, chunks)

            response = await engine.chat.completions.create(messages=HELLO)

    error = caught.value
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "H"
    assert (error.request_id, error.limit, error.seconds) == ("r", limit, 1.5)
    assert isinstance(error, TimeoutError)
    assert isinstance(error, AiomlcError)
    assert response.choices[0].message.content == "Hello!"


async def test_time_limits_and_priority_are_passed_to_the_core() -> None:
    core = FakeCore()
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        await engine.chat.completions.create(
            messages=HELLO,
            priority=-3,
            timeout=9000.0,
            first_token_timeout=2000,
            inter_token_timeout=0.5,
        )
        await engine.completions.create(prompt="a", priority=4)

    first, second = core.options
    assert (first.priority, second.priority) == (-3, 4)
    # The time to prepare the request counts.
    assert 8000 < (first.timeout or 0) < 9000
    assert 1000 < (first.first_token_timeout or 0) < 2000
    assert first.inter_token_timeout == 0.5
    assert (second.timeout, second.first_token_timeout) == (None, None)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("value", [0, -1.0, "1", float("nan")])
async def test_an_invalid_time_limit_is_named_in_the_error(limit: str, value: Any) -> None:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(BadRequestError) as caught:
            await engine.chat.completions.create(messages=HELLO, extra_body={limit: value})

    assert caught.value.param == limit


async def test_a_full_queue_rejects_all_choices_of_a_request() -> None:
    core = FakeCore(hand_stepped=True, max_live=3)
    with fail_after(10):
        async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
            stream = await engine.chat.completions.create(messages=HELLO, stream=True, n=2)
            with pytest.raises(EngineOverloadedError):
                await engine.chat.completions.create(messages=HELLO, n=2)

            core.allow(1000)
            chunks = [chunk async for chunk in stream]
            response = await engine.chat.completions.create(messages=HELLO)

    assert core.cancelled == [3]
    assert {choice.finish_reason for chunk in chunks for choice in chunk.choices} == {None, "stop"}
    assert response.choices[0].finish_reason == "stop"


async def test_a_slow_reader_pauses_only_its_own_sequence() -> None:
    core = FakeCore(["x" * 50_000, "y" * 50])  # Too long to end before it is paused.
    with fail_after(15):
        async with EngineClient(core, max_unread_tokens=100) as engine:
            slow = engine.open_stream(Prompt([1]), SequenceOptions())
            fast = engine.open_stream(Prompt([2]), SequenceOptions())
            assert len("".join([delta.text async for delta in fast])) == 50
            while not core.paused:
                await wait_all_tasks_blocked()

            first = await anext(slow)
            rest = "".join([delta.text async for delta in slow])

    assert set(core.paused) == {1}
    assert set(core.resumed) == {1}
    assert 100 <= len(first.text) < 50_000
    assert first.text + rest == "x" * 50_000


async def test_a_fast_reader_is_never_paused() -> None:
    core = FakeCore(["x" * 500])
    async with EngineClient(core, max_unread_tokens=501) as engine:
        deltas = [delta async for delta in engine.open_stream(Prompt([1]), SequenceOptions())]

    assert "".join(delta.text for delta in deltas) == "x" * 500
    assert (core.paused, core.resumed) == ([], [])


async def test_a_paused_stream_can_be_closed() -> None:
    core = FakeCore(["x" * 50_000])
    with fail_after(15):
        async with EngineClient(core, max_unread_tokens=10) as engine:
            stream = engine.open_stream(Prompt([1]), SequenceOptions())
            while not core.paused:
                await wait_all_tasks_blocked()

            stream.close()
            while engine.statistics().num_running:
                await wait_all_tasks_blocked()

    assert core.cancelled == [1]


@pytest.mark.parametrize(("field", "value"), [("max_queue_size", -1), ("max_unread_tokens", 0)])
def test_an_invalid_limit_of_the_engine_is_named_in_the_error(field: str, value: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError) as caught:
        EngineConfig(**{field: value})

    assert caught.value.param == field
