"""Embeddings: their shape, their batches, and what one caller's end does to the others."""

from __future__ import annotations

import base64
import struct
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.lowlevel import checkpoint

from aiomlc import AsyncMLCEngine, EmbeddingResponse, MLCEngine, SyncMLCEngine
from aiomlc.errors import BadRequestError, EngineClosedError, InputTooLongError, RequestFailedError
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader

pytestmark = pytest.mark.timeout(20)


async def embed(text: Any, **options: Any) -> EmbeddingResponse:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        answer: EmbeddingResponse = await engine.embeddings.create(input=text, **options)
        return answer


async def test_an_answer_has_openais_shape() -> None:
    answer = await embed("bdf", normalize=False, model="mine")

    assert answer.model_dump() == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [3.0, 1.0, 1.0]}],
        "model": "mine",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
async def test_openais_client_reads_the_answer(encoding_format: str) -> None:
    types = pytest.importorskip("openai.types")
    answer = await embed(["b", "cd"], encoding_format=encoding_format)

    # The client's own type knows lists only; it decodes base64 before it hands an answer out.
    dump = answer.model_dump(mode="json")
    for item in dump["data"]:
        if encoding_format == "base64":
            values = base64.b64decode(item["embedding"])
            item["embedding"] = list(struct.unpack("<3f", values))
    parsed = types.CreateEmbeddingResponse.model_validate(dump, strict=True)

    assert parsed.model_dump(mode="json", exclude_unset=True) == dump
    assert [item.index for item in parsed.data] == [0, 1]


@pytest.mark.parametrize(
    ("given", "vectors"),
    [
        ("bd", [[2, 0.5, 1]]),
        (["bd", "z"], [[2, 0.5, 1], [25, 0, 1]]),
        ([1, 3], [[2, 0.5, 1]]),
        ([[1, 3], [25]], [[2, 0.5, 1], [25, 0, 1]]),
        (("bd", (25,)), [[2, 0.5, 1], [25, 0, 1]]),
    ],
)
async def test_texts_and_token_ids_alone_and_in_lists(
    given: object, vectors: list[list[float]]
) -> None:
    answer = await embed(given, normalize=False)

    assert [item.embedding for item in answer.data] == vectors


@pytest.mark.parametrize(
    ("pooling", "vector"), [("mean", [2, 1, 1]), ("cls", [1, 0, 1]), ("last", [3, 2, 1])]
)
async def test_a_request_chooses_its_pooling(pooling: Any, vector: list[float]) -> None:  # noqa: ANN401
    answer = await embed([1, 2, 3], pooling=pooling, normalize=False)

    assert answer.data[0].embedding == vector


async def test_vectors_have_length_one_also_when_they_are_cut() -> None:
    whole = await embed([3])
    cut = await embed([3], dimensions=1)

    assert whole.data[0].embedding == pytest.approx([3 / 10**0.5, 0, 1 / 10**0.5])
    assert cut.data[0].embedding == [1.0]


async def test_a_portable_vector_is_little_endian_float32() -> None:
    answer = await embed([3], encoding_format="base64", normalize=False)
    text = answer.data[0].embedding

    assert isinstance(text, str)
    assert struct.unpack("<3f", base64.b64decode(text)) == (3.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("given", "options", "param"),
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
        ("a", {"colour": 1}, "colour"),
        ("a", {"extra_body": {"truncate": "yes"}}, "truncate"),
    ],
)
async def test_a_wrong_field_is_named(given: object, options: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        await embed(given, **options)

    assert caught.value.param == param


async def test_an_input_that_is_too_long_is_named_or_cut() -> None:
    with pytest.raises(InputTooLongError) as caught:
        await embed(["a", "b" * 17])
    cut = await embed(["b" * 17, [1] * 17], truncate=True)

    assert (caught.value.index, caught.value.num_tokens, caught.value.max_tokens) == (1, 17, 16)
    assert cut.usage.prompt_tokens == 32


async def test_requests_that_wait_share_a_forward_pass() -> None:
    encoder = FakeEncoder(hand_stepped=True)
    answers: dict[int, object] = {}

    async with (
        AsyncMLCEngine(loader=fake_loader(encoder)) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def ask(token: int) -> None:
            answer = await engine.embeddings.create(input=[token], normalize=False)
            answers[token] = answer.data[0].embedding

        tasks.start_soon(ask, 0)
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        for token in (1, 2, 3):
            tasks.start_soon(ask, token)
        await wait_for_waiting(engine, 4)
        encoder.allow(2)

    assert [sorted(batch) for batch in encoder.batches] == [[[0]], [[1], [2], [3]]]
    assert answers == {token: [token, 0, 1] for token in range(4)}


async def test_a_request_with_many_texts_leaves_room_for_one_with_few() -> None:
    encoder = FakeEncoder(hand_stepped=True)

    async with (
        AsyncMLCEngine(loader=fake_loader(encoder, batch_tokens=4)) as engine,
        anyio.create_task_group() as tasks,
    ):
        many = [[1]] * 12
        tasks.start_soon(ask_for, engine, many)
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        tasks.start_soon(ask_for, engine, [[2]])
        await wait_for_waiting(engine, 2)
        encoder.allow(9)

    assert encoder.batches[0] == [[1]] * 4
    assert [2] in encoder.batches[1]
    assert sum(map(len, encoder.batches)) == 13


async def test_a_caller_that_leaves_disturbs_no_other() -> None:
    encoder = FakeEncoder(hand_stepped=True)
    answers: list[object] = []

    async with (
        AsyncMLCEngine(loader=fake_loader(encoder, batch_tokens=1)) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def stay(token: int) -> None:
            answer = await engine.embeddings.create(input=[token], normalize=False)
            answers.append(answer.data[0].embedding)

        async def leave(scope: anyio.CancelScope, token: int) -> None:
            with scope:
                await engine.embeddings.create(input=[[token], [token]])
                answers.append("it did not leave")

        running, waiting = anyio.CancelScope(), anyio.CancelScope()
        tasks.start_soon(leave, running, 1)  # It runs the batch.
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        tasks.start_soon(leave, waiting, 2)
        tasks.start_soon(stay, 3)
        await wait_for_waiting(engine, 3)
        running.cancel()
        waiting.cancel()
        encoder.allow(9)

    assert answers == [[3, 0, 1]]
    assert encoder.batches[0] == [[1]]
    assert encoder.batches[-1] == [[3]]


async def test_a_batch_that_fails_is_its_callers_error_alone() -> None:
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
        tasks.start_soon(ask_for, engine, [[2]])
        await wait_for_waiting(engine, 2)
        encoder.allow(2)

    assert encoder.batches == [[[1]], [[2]]]


async def test_the_end_of_the_engine_ends_those_who_wait() -> None:
    encoder = FakeEncoder(hand_stepped=True)
    engine = AsyncMLCEngine(loader=fake_loader(encoder))
    outcomes: dict[int, object] = {}

    async def ask(token: int) -> None:
        try:
            answer = await engine.embeddings.create(input=[token], normalize=False)
            outcomes[token] = answer.data[0].embedding
        except EngineClosedError:
            outcomes[token] = "closed"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, 1)
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        tasks.start_soon(ask, 2)
        await wait_for_waiting(engine, 2)
        engine.terminate()
        encoder.allow(2)

    with pytest.raises(EngineClosedError):
        await engine.embeddings.create(input="a")
    assert outcomes == {1: [1, 0, 1], 2: "closed"}


async def test_statistics_count_what_was_embedded() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        await engine.embeddings.create(input=["abc", "d"])
        statistics = engine.statistics()

    assert (statistics.prompt_tokens, statistics.steps, statistics.total_pages) == (4, 1, 0)
    assert statistics.num_waiting == 0


async def test_models_that_cannot_say_so() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        with pytest.raises(BadRequestError, match="'fake' is a decoder") as caught:
            await engine.embeddings.create(input="a")
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        with pytest.raises(BadRequestError, match="'fake' is an encoder"):
            await engine.completions.create(prompt="a")
        assert engine.statistics().total_pages == 0

    assert caught.value.param == "model"


def test_blocking_callers_have_embeddings_too() -> None:
    with MLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        answer = engine.embeddings.create(input=["b", "c"], normalize=False)

    assert [item.embedding for item in answer.data] == [[1, 0, 1], [2, 0, 1]]


def test_an_engine_of_steps_refuses_an_encoder() -> None:
    with pytest.raises(BadRequestError, match="no steps"):
        SyncMLCEngine(loader=fake_loader(FakeEncoder()))


async def ask_for(engine: AsyncMLCEngine, texts: list[list[int]]) -> None:
    answer = await engine.embeddings.create(input=texts)
    assert len(answer.data) == len(texts)


async def wait_for_waiting(engine: AsyncMLCEngine, count: int) -> None:
    """Until so many requests are with the embedder."""
    while f" {count} requests" not in repr(await engine._service.embedder()):
        await checkpoint()
