"""Reranking, scores and classification: wire format, order, batches and errors."""

from __future__ import annotations

import math
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.lowlevel import checkpoint

from aiomlc import AsyncMLCEngine, MLCEngine
from aiomlc.api.protocol.ranking import RerankResponse
from aiomlc.errors import (
    BadRequestError,
    EngineDrainingError,
    InputTooLongError,
    RequestFailedError,
)
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader

pytestmark = pytest.mark.timeout(20)


def classifier(*labels: str) -> AsyncMLCEngine:
    return AsyncMLCEngine(loader=fake_loader(FakeEncoder(labels=labels or ("relevant",))))


async def rerank(query: Any, documents: Any, **options: Any) -> RerankResponse:  # noqa: ANN401
    async with classifier() as engine:
        response: RerankResponse = await engine.rerank(query, documents, **options)
        return response


def sigmoid(sum_of_ids: int) -> float:
    return 1 / (1 + math.exp(-sum_of_ids / 100))


async def test_documents_are_ranked_by_their_scores() -> None:
    response = await rerank("b", ["a", "z", "m"], model="mine")

    fields = response.model_dump()
    assert fields.pop("id").startswith("rerank-")
    assert fields == {
        "model": "mine",
        "results": [
            {"index": 1, "relevance_score": pytest.approx(sigmoid(26))},
            {"index": 2, "relevance_score": pytest.approx(sigmoid(13))},
            {"index": 0, "relevance_score": pytest.approx(sigmoid(1))},
        ],
        "usage": {"prompt_tokens": 6, "total_tokens": 6, "completion_tokens": 0},
    }


async def test_documents_with_equal_scores_keep_their_order() -> None:
    response = await rerank("b", ["c", "d", "c", "d", "c"])

    assert [result.index for result in response.results] == [1, 3, 0, 2, 4]


@pytest.mark.parametrize("documents", [["a", "z"], [{"text": "a"}, {"text": "z"}], ("a", "z")])
async def test_the_best_documents_are_returned_with_their_texts(documents: Any) -> None:  # noqa: ANN401
    response = await rerank("b", documents, top_n=1, return_documents=True)

    (result,) = response.model_dump()["results"]
    assert (result["index"], result["document"]) == (1, {"text": "z"})


async def test_logits_are_returned_without_the_activation() -> None:
    response = await rerank("b", ["z"], use_activation=False)

    assert response.results[0].relevance_score == pytest.approx(0.26)


async def test_scores_have_the_order_of_the_pairs() -> None:
    async with classifier() as engine:
        response = await engine.score([("b", "a"), ("c", "z")])

    assert (response.object, response.model, response.usage.total_tokens) == ("list", "fake", 4)
    assert [item.score for item in response.data] == pytest.approx([sigmoid(1), sigmoid(27)])
    assert [(item.index, item.object) for item in response.data] == [(0, "score"), (1, "score")]


async def test_the_probabilities_of_labels_sum_to_1() -> None:
    async with classifier("no", "yes") as engine:
        inputs: Any = ["a", [25, 25]]
        response = await engine.classify(inputs)

    powers = [1, math.e]
    expected = [power / sum(powers) for power in powers]
    assert [item.probs for item in response.data] == [pytest.approx(expected)] * 2
    assert [(item.index, item.label, item.num_classes) for item in response.data] == [
        (0, "yes", 2),
        (1, "yes", 2),
    ]
    assert response.usage.prompt_tokens == 3


def test_the_blocking_engine_has_the_same_methods() -> None:
    with MLCEngine(loader=fake_loader(FakeEncoder(labels=["relevant"]))) as engine:
        assert engine.rerank("b", ["a", "z"], top_n=1).results[0].index == 1
        assert engine.score([("b", "a")]).data[0].score == pytest.approx(sigmoid(1))
        assert engine.classify("b").data[0].label == "relevant"


@pytest.mark.parametrize(
    ("arguments", "options", "param"),
    [
        (("", []), {}, "documents"),
        ((3, ["a"]), {}, "query"),
        (("a", [3]), {}, "documents"),
        (("a", [{"title": "b"}]), {}, "documents"),
        (("a", [{"text": "b", "title": "c"}]), {}, "documents"),
        (("a", ["b"]), {"top_n": 0}, "top_n"),
        (("a", ["b"]), {"return_documents": "yes"}, "return_documents"),
        (("a", ["b"]), {"color": 1}, "color"),
        (("", [""]), {}, "documents[0]"),
    ],
)
async def test_an_invalid_field_is_named(
    arguments: tuple[Any, Any], options: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        await rerank(*arguments, **options)

    assert caught.value.param == param


@pytest.mark.parametrize(
    ("pairs", "param"),
    [([], "pairs"), ("ab", "pairs"), ([("a",)], "pairs[0]"), (["ab"], "pairs[0]")],
)
async def test_invalid_pairs_are_named(pairs: Any, param: str) -> None:  # noqa: ANN401
    async with classifier() as engine:
        with pytest.raises(BadRequestError) as caught:
            await engine.score(pairs)

    assert caught.value.param == param


async def test_a_pair_that_is_too_long_is_rejected_or_truncated() -> None:
    with pytest.raises(InputTooLongError, match=r"documents\[1\]: .* 16 tokens, got 18") as caught:
        await rerank("ab", ["a", "b" * 16])
    with pytest.raises(InputTooLongError, match="at least 10000"):
        await rerank("ab", ["b" * 1_000_000])
    truncated = await rerank("ab", ["b" * 1_000_000], truncate=True)

    assert (caught.value.index, caught.value.num_tokens, caught.value.max_tokens) == (1, 18, 16)
    assert truncated.usage.prompt_tokens == 16


async def test_a_model_with_several_labels_scores_no_pairs() -> None:
    async with classifier("no", "yes") as engine:
        with pytest.raises(BadRequestError, match="has 2 labels; scores need a model with one"):
            await engine.rerank("a", ["b"])


@pytest.mark.parametrize("core", [FakeEncoder(), FakeCore()])
async def test_another_kind_of_model_is_refused(core: FakeEncoder | FakeCore) -> None:
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        with pytest.raises(BadRequestError, match="which does not support classify") as caught:
            await engine.classify("a")

    assert caught.value.param == "model"


async def test_a_decoder_scores_no_pairs() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        for call in (engine.rerank("a", ["b"]), engine.score([("a", "b")])):
            with pytest.raises(BadRequestError, match="decoder, which does not support rerank and"):
                await call


def embedder() -> AsyncMLCEngine:
    return AsyncMLCEngine(loader=fake_loader(FakeEncoder(has_token_heads=True)))


def cosine(first: list[float], second: list[float]) -> float:
    product = sum(x * y for x, y in zip(first, second, strict=True))
    return product / (math.hypot(*first) * math.hypot(*second))


async def test_an_encoder_scores_by_the_cosine_of_embeddings() -> None:
    async with embedder() as engine:
        response = await engine.score([("b", "c"), ("z", "de")])

    # The first text has the prompt "q", which is the token 16.
    expected = [
        cosine([8.5, 0.5, 1], [2, 0, 1]),
        cosine([20.5, 0.5, 1], [3.5, 0.5, 1]),
    ]
    assert [item.score for item in response.data] == pytest.approx(expected)
    assert (response.usage.total_tokens, response.model) == (7, "fake")


async def test_an_encoder_ranks_by_the_embeddings_that_are_asked_for() -> None:
    async with embedder() as engine:
        sparse = await engine.rerank("dz", ["d", "az", "zd"], similarity="sparse")
        late = await engine.rerank("dz", ["abz", "ad"], similarity="multi_vector")

    ranked = [(each.index, each.relevance_score) for each in sparse.results]
    assert ranked == [(2, 23 * 23 + 1), (1, 23 * 23), (0, 1)]
    query = [[3.0, 1.0], [25.0, 2.0]]
    best = [
        sum(max(cosine(row, other) for other in rows) for row in query) / 2
        for rows in ([[1.0, 1.0], [25.0, 2.0]], [[3.0, 1.0]])
    ]
    assert [each.index for each in late.results] == [1, 0] if best[1] > best[0] else [0, 1]
    assert sorted(each.relevance_score for each in late.results) == pytest.approx(sorted(best))


async def test_documents_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = FakeEncoder(has_token_heads=True)
    documents = ["abc", "zzzzz", "d", "ef", "g"]
    async with AsyncMLCEngine(loader=fake_loader(encoder)) as engine:
        pairs = [("b", document) for document in documents]
        whole = await engine.score(pairs, similarity="multi_vector")
        monkeypatch.setattr("aiomlc.api.similarity._PART_TOKENS", 4)
        encoder.batches.clear()
        parts = await engine.score(pairs, similarity="multi_vector")
        several = await engine.score([*pairs, ("c", "a")], similarity="multi_vector")

    assert [len(batch) for batch in encoder.batches[:4]] == [1, 1, 1, 3]
    assert parts.data == whole.data
    assert [each.score for each in several.data[:5]] == [each.score for each in whole.data]


async def test_what_a_model_cannot_compare_is_refused() -> None:
    plain = AsyncMLCEngine(loader=fake_loader(FakeEncoder()))
    for engine, message in ((plain, "has no sparse_linear.pt"), (classifier(), "is a classifier")):
        async with engine:
            with pytest.raises(BadRequestError, match=message) as caught:
                await engine.score([("a", "b")], similarity="sparse")

            assert caught.value.param == "similarity"
    async with embedder() as engine:
        with pytest.raises(BadRequestError, match="similarity"):
            await engine.score([("a", "b")], extra_body={"similarity": "cosine"})


async def test_a_document_that_is_too_long_is_named() -> None:
    async with embedder() as engine:
        with pytest.raises(InputTooLongError) as caught:
            await engine.rerank("a", ["b", "c" * 17])

    assert str(caught.value).startswith("documents[1]: must have at most 16 tokens, got 17")
    assert caught.value.index == 1


async def test_a_classifier_refuses_embeddings_and_chat() -> None:
    async with classifier() as engine:
        with pytest.raises(BadRequestError, match="is a classifier, which does not support emb"):
            await engine.embeddings.create(input="a")
        with pytest.raises(BadRequestError, match="which supports only classify, rerank and"):
            await engine.chat.completions.create(messages=[{"role": "user", "content": "a"}])


async def test_a_failure_of_the_encoder_ends_only_its_request() -> None:
    encoder = FakeEncoder(labels=["x"], failure=RuntimeError("broken"))
    async with AsyncMLCEngine(loader=fake_loader(encoder)) as engine:
        with pytest.raises(RequestFailedError, match="broken"):
            await engine.rerank("a", ["b"])

        assert len((await engine.rerank("a", ["b"])).results) == 1


async def test_concurrent_requests_share_a_forward_pass() -> None:
    encoder = FakeEncoder(labels=["x"], hand_stepped=True)
    responses = []
    async with (
        AsyncMLCEngine(loader=fake_loader(encoder)) as engine,
        anyio.create_task_group() as tasks,
    ):

        async def ask(document: str) -> None:
            responses.append(await engine.rerank("a", [document]))

        tasks.start_soon(ask, "b")
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        for document in "cd":
            tasks.start_soon(ask, document)
        while engine.statistics().num_waiting < 2:
            await checkpoint()
        encoder.allow(2)

    assert len(responses) == 3
    assert [sorted(batch) for batch in encoder.batches] == [[[0, 1]], [[0, 2], [0, 3]]]


async def test_a_cancelled_request_withdraws_its_documents() -> None:
    encoder = FakeEncoder(labels=["x"], hand_stepped=True)
    async with (
        AsyncMLCEngine(loader=fake_loader(encoder)) as engine,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(engine.rerank, "a", ["b"])
        await to_thread.run_sync(encoder.wait_for_batches, 1)
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(engine.rerank, "a", ["c", "d"])
            while engine.statistics().num_waiting < 1:
                await checkpoint()
            waiting.cancel_scope.cancel()
        encoder.allow(1)

    assert encoder.batches == [[[0, 1]]]


async def test_a_draining_engine_ranks_nothing() -> None:
    async with classifier() as engine:
        assert await engine.drain()
        with pytest.raises(EngineDrainingError):
            await engine.rerank("a", ["b"])
