"""Embeddings: wire format, pooling, batching, cancellation and errors."""

from __future__ import annotations

import base64
import struct
from typing import Any

import anyio
import numpy as np
import openai.types
import pytest
from anyio import to_thread, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from aiomlc import AsyncMLCEngine, EmbeddingResponse, MLCEngine, SyncMLCEngine
from aiomlc.errors import (
    BadRequestError,
    EngineClosedError,
    EngineDrainingError,
    InputTooLongError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader

pytestmark = pytest.mark.timeout(20)


async def embed(text: Any, **options: Any) -> EmbeddingResponse:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        response: EmbeddingResponse = await engine.embeddings.create(input=text, **options)
        return response


async def test_a_response_has_openais_format() -> None:
    response = await embed("bdf", normalize=False, model="mine")

    assert response.model_dump() == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [3.0, 1.0, 1.0]}],
        "model": "mine",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
async def test_openais_type_accepts_the_response(encoding_format: str) -> None:

    response = await embed(["b", "cd"], encoding_format=encoding_format)

    # OpenAI's type has lists only, because the client decodes base64 on receipt.
    dump = response.model_dump(mode="json")
    for item in dump["data"]:
        if encoding_format == "base64":
            values = base64.b64decode(item["embedding"])
            item["embedding"] = list(struct.unpack("<3f", values))
    parsed = openai.types.CreateEmbeddingResponse.model_validate(dump, strict=True)

    assert parsed.model_dump(mode="json", exclude_unset=True) == dump
    assert [item.index for item in parsed.data] == [0, 1]


@pytest.mark.parametrize(
    ("input_", "vectors"),
    [
        ("bd", [[2, 0.5, 1]]),
        (["bd", "z"], [[2, 0.5, 1], [25, 0, 1]]),
        ([1, 3], [[2, 0.5, 1]]),
        ([[1, 3], [25]], [[2, 0.5, 1], [25, 0, 1]]),
        (("bd", (25,)), [[2, 0.5, 1], [25, 0, 1]]),
    ],
)
async def test_inputs_are_strings_or_token_ids_or_lists_of_them(
    input_: object, vectors: list[list[float]]
) -> None:
    response = await embed(input_, normalize=False)

    assert [item.embedding for item in response.data] == vectors


@pytest.mark.parametrize(
    ("pooling", "vector"), [("mean", [2, 1, 1]), ("cls", [1, 0, 1]), ("last", [3, 2, 1])]
)
async def test_the_request_can_select_the_pooling(pooling: Any, vector: list[float]) -> None:  # noqa: ANN401
    response = await embed([1, 2, 3], pooling=pooling, normalize=False)

    assert response.data[0].embedding == vector


async def test_embeddings_are_normalized_after_truncation_to_the_dimensions() -> None:
    full = await embed([3])
    truncated = await embed([3], dimensions=1)

    assert full.data[0].embedding == pytest.approx([3 / 10**0.5, 0, 1 / 10**0.5])
    assert truncated.data[0].embedding == [1.0]


async def test_a_prompt_precedes_texts_but_no_token_ids() -> None:
    text = await embed("b", prompt_name="query", pooling="cls", normalize=False)
    ids = await embed([1], prompt_name="query", pooling="cls", normalize=False)

    assert (text.data[0].embedding, text.usage.prompt_tokens) == ([16, 0, 1], 2)
    assert (ids.data[0].embedding, ids.usage.prompt_tokens) == ([1, 0, 1], 1)


async def test_base64_embeddings_are_little_endian_float32() -> None:
    response = await embed([3], encoding_format="base64", normalize=False)
    text = response.data[0].embedding

    assert isinstance(text, str)
    assert struct.unpack("<3f", base64.b64decode(text)) == (3.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("input_", "options", "param"),
    [
        ("", {}, "input[0]"),
        ([], {}, "input"),
        (["a", 3], {}, "input"),
        ([[1], []], {}, "input"),
        ([[1], [26]], {}, "input[1]"),
        ([-1], {}, "input[0]"),
        ("a", {"dimensions": 4}, "dimensions"),
        ("a", {"dimensions": 0}, "dimensions"),
        ("a", {"encoding_format": "int8"}, "encoding_format"),
        ("a", {"pooling": "max"}, "pooling"),
        ("a", {"prompt_name": "other"}, "prompt_name"),
        ("a", {"color": 1}, "color"),
        ("a", {"extra_body": {"truncate": "yes"}}, "truncate"),
    ],
)
async def test_an_invalid_field_is_named(
    input_: object, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        await embed(input_, **options)

    assert caught.value.param == param


async def test_an_input_that_is_too_long_is_rejected_or_truncated() -> None:
    with pytest.raises(InputTooLongError) as caught:
        await embed(["a", "b" * 17])
    truncated = await embed(["b" * 17, [1] * 17], truncate=True)

    assert (caught.value.index, caught.value.num_tokens, caught.value.max_tokens) == (1, 17, 16)
    assert truncated.usage.prompt_tokens == 32


async def test_a_text_that_is_too_long_by_far_is_not_encoded_as_a_whole() -> None:
    with pytest.raises(InputTooLongError, match="got at least 10000; pass truncate=True") as caught:
        await embed(["a", "b" * 1_000_000])

    assert (caught.value.index, caught.value.max_tokens) == (1, 16)
    truncated = await embed("b" * 1_000_000, truncate=True)
    assert truncated.usage.prompt_tokens == 16


@pytest.mark.parametrize(
    ("input_", "message"),
    [
        ("b" * 2_000_001, "input: item 0 must have at most 2000000 characters, got 2000001"),
        (["b"] * 65_537, "input: must have at most 65536 items, got 65537"),
        ([1] * 65_537, "input: must have at most 65536 items, got 65537"),
        ([[1], [1] * 65_537], "input[1]: must have at most 65536 token ids, got 65537"),
    ],
)
async def test_the_size_of_a_request_is_limited(input_: object, message: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        await embed(input_, truncate=True)

    assert str(caught.value) == message


async def test_waiting_requests_share_a_forward_pass() -> None:
    encoder = FakeEncoder(hand_stepped=True)
    embeddings: dict[int, object] = {}

    async with (
        AsyncMLCEngine(loader=fake_loader(encoder)) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def ask(token: int) -> None:
            response = await engine.embeddings.create(input=[token], normalize=False)
            embeddings[token] = response.data[0].embedding

        tasks.start_soon(ask, 0)
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        for token in (1, 2, 3):
            tasks.start_soon(ask, token)
        await wait_for_requests(engine, 4)
        encoder.allow(2)

    assert [sorted(batch) for batch in encoder.batches] == [[[0]], [[1], [2], [3]]]
    assert embeddings == {token: [token, 0, 1] for token in range(4)}


async def test_a_large_request_does_not_delay_a_small_one() -> None:
    encoder = FakeEncoder(hand_stepped=True)

    async with (
        AsyncMLCEngine(loader=fake_loader(encoder, batch_tokens=4)) as engine,
        anyio.create_task_group() as tasks,
    ):
        long_request = [[1]] * 12
        tasks.start_soon(check_embeddings, engine, long_request)
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        tasks.start_soon(check_embeddings, engine, [[2]])
        await wait_for_requests(engine, 2)
        encoder.allow(9)

    assert encoder.batches[0] == [[1]] * 4
    assert [2] in encoder.batches[1]
    assert sum(map(len, encoder.batches)) == 13


async def test_a_cancelled_request_does_not_affect_others() -> None:
    encoder = FakeEncoder(hand_stepped=True)
    embeddings: list[object] = []

    async with (
        AsyncMLCEngine(loader=fake_loader(encoder, batch_tokens=1)) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def stay(token: int) -> None:
            response = await engine.embeddings.create(input=[token], normalize=False)
            embeddings.append(response.data[0].embedding)

        async def leave(scope: anyio.CancelScope, token: int) -> None:
            with scope:
                await engine.embeddings.create(input=[[token], [token]])
                embeddings.append("not cancelled")

        running, waiting = anyio.CancelScope(), anyio.CancelScope()
        tasks.start_soon(leave, running, 1)  # This task runs the batch.
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        tasks.start_soon(leave, waiting, 2)
        tasks.start_soon(stay, 3)
        await wait_for_requests(engine, 3)
        running.cancel()
        waiting.cancel()
        encoder.allow(9)

    assert embeddings == [[3, 0, 1]]
    assert encoder.batches[0] == [[1]]
    assert encoder.batches[-1] == [[3]]


async def test_a_vector_that_is_not_finite_fails_only_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = FakeEncoder()
    forward = encoder.forward
    monkeypatch.setattr(
        encoder, "forward", lambda inputs: np.where(inputs[0].ids[0] == 7, np.nan, forward(inputs))
    )

    async with AsyncMLCEngine(loader=fake_loader(encoder)) as engine:
        with pytest.raises(RequestFailedError, match="not finite"):
            await engine.embeddings.create(input=[7, 1])

        assert (await engine.embeddings.create(input=[1, 7])).data[0].embedding


async def test_a_failed_batch_fails_only_its_requests() -> None:
    encoder = FakeEncoder(hand_stepped=True, failure=RuntimeError("no memory"))

    async with (
        AsyncMLCEngine(loader=fake_loader(encoder)) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def fail() -> None:
            with pytest.raises(RequestFailedError, match="no memory"):
                await engine.embeddings.create(input=[1])

        tasks.start_soon(fail)
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        tasks.start_soon(check_embeddings, engine, [[2]])
        await wait_for_requests(engine, 2)
        encoder.allow(2)

    assert encoder.batches == [[[1]], [[2]]]


async def test_terminating_the_engine_ends_waiting_requests() -> None:
    encoder = FakeEncoder(hand_stepped=True)
    engine = AsyncMLCEngine(loader=fake_loader(encoder))
    outcomes: dict[int, object] = {}

    async def ask(token: int) -> None:
        try:
            response = await engine.embeddings.create(input=[token], normalize=False)
            outcomes[token] = response.data[0].embedding
        except EngineClosedError:
            outcomes[token] = "closed"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, 1)
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        tasks.start_soon(ask, 2)
        await wait_for_requests(engine, 2)
        engine.terminate()
        encoder.allow(2)

    with pytest.raises(EngineClosedError):
        await engine.embeddings.create(input="a")
    assert outcomes == {1: [1, 0, 1], 2: "closed"}


async def test_statistics_count_embedded_tokens() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        await engine.embeddings.create(input=["abc", "d"])
        statistics = engine.statistics()

    assert (statistics.prompt_tokens, statistics.steps, statistics.total_pages) == (4, 1, 0)
    assert statistics.num_waiting == 0


async def test_decoders_reject_embeddings_and_encoders_reject_completions() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        with pytest.raises(BadRequestError, match="'fake' is a decoder") as caught:
            await engine.embeddings.create(input="a")
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        with pytest.raises(BadRequestError, match="'fake' is an encoder"):
            await engine.completions.create(prompt="a")
        assert engine.statistics().total_pages == 0

    assert caught.value.param == "model"


def test_the_blocking_engine_has_embeddings() -> None:
    with MLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        response = engine.embeddings.create(input=["b", "c"], normalize=False)

    assert [item.embedding for item in response.data] == [[1, 0, 1], [2, 0, 1]]


async def test_draining_waits_for_embeddings_and_rejects_others() -> None:
    encoder = FakeEncoder(hand_stepped=True)
    drained: list[bool] = []

    async with (
        AsyncMLCEngine(loader=fake_loader(encoder)) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def drain() -> None:
            drained.append(await engine.drain())

        tasks.start_soon(check_embeddings, engine, [[1]])
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        tasks.start_soon(drain)
        tasks.start_soon(drain)
        await wait_all_tasks_blocked()
        assert engine.statistics().num_running == 1
        assert engine.statistics().num_waiting == 0
        assert drained == []
        with pytest.raises(EngineDrainingError):
            await engine.embeddings.create(input=[1])

        encoder.allow(2)

    assert drained == [True, True]


async def test_embeddings_that_outlast_draining_are_aborted() -> None:
    encoder = FakeEncoder(hand_stepped=True)

    async with (
        AsyncMLCEngine(loader=fake_loader(encoder)) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def ask() -> None:
            with pytest.raises(RequestAbortedError):
                await engine.embeddings.create(input=[1])

        tasks.start_soon(ask)
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        encoder.allow()  # The batch ends, but its request is aborted.
        assert not await engine.drain(0)
        engine.resume()
        encoder.allow()
        await check_embeddings(engine, [[2]])


def test_the_step_engine_rejects_encoders() -> None:
    with pytest.raises(BadRequestError, match="the model is an encoder"):
        SyncMLCEngine(loader=fake_loader(FakeEncoder()))


async def check_embeddings(engine: AsyncMLCEngine, texts: list[list[int]]) -> None:
    response = await engine.embeddings.create(input=texts)
    assert len(response.data) == len(texts)


async def wait_for_requests(engine: AsyncMLCEngine, count: int) -> None:
    """Wait until the batcher has that number of requests."""
    while f" {count} requests" not in repr(
        (await engine._lifecycle.encoder("embedding")).model.batcher
    ):
        await checkpoint()
