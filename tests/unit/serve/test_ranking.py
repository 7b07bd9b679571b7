"""The endpoints of sequence classifiers have the shapes of Cohere's, Jina's and vLLM's."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.serve import ServerOptions, create_app
from aiomlc.testing import FakeEncoder, fake_loader
from tests.unit.serve.asgi import http_client

pytestmark = pytest.mark.timeout(20)


async def post(
    path: str, fields: dict[str, Any], *labels: str, options: ServerOptions | None = None
) -> Any:  # noqa: ANN401
    encoder = FakeEncoder(labels=labels or ("relevant",))
    engine = AsyncMLCEngine(loader=fake_loader(encoder))
    async with engine, http_client(create_app({"m": engine}, options)) as client:
        return await client.post(path, json=fields)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
async def test_documents_are_ranked(path: str) -> None:
    fields = {"query": "b", "documents": ["a", {"text": "z"}], "top_n": 1}

    plain = (await post(path, fields)).json()
    whole = (await post(path, {**fields, "model": "m", "return_documents": True})).json()

    (result,) = plain["results"]
    assert result == {"index": 1, "relevance_score": pytest.approx(0.56464, abs=1e-4)}
    assert whole["results"] == [{**result, "document": {"text": "z"}}]
    assert (whole["model"], whole["usage"]["total_tokens"]) == ("m", 4)


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
@pytest.mark.parametrize(
    ("first", "second", "logits"),
    [("b", ["a", "z"], [0.01, 0.26]), (["b", "c"], ["a", "z"], [0.01, 0.27]), ("b", "z", [0.26])],
)
async def test_pairs_are_scored(
    path: str, first: object, second: object, logits: list[float]
) -> None:
    fields = {"text_1": first, "text_2": second, "use_activation": False}

    answer = (await post(path, fields)).json()

    assert answer["object"] == "list"
    assert [item["score"] for item in answer["data"]] == pytest.approx(logits)


async def test_texts_are_classified() -> None:
    answer = (await post("/v1/classify", {"input": ["a", "b"]}, "no", "yes")).json()

    assert [item["label"] for item in answer["data"]] == ["yes", "yes"]
    assert answer["data"][0]["num_classes"] == len(answer["data"][0]["probs"]) == 2


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/rerank", {"query": "b"}, "documents"),
        ("/v1/rerank", {"query": "b", "documents": ["a"] * 3}, "documents"),
        ("/v1/rerank", {"query": "b", "documents": ["a" * 20]}, None),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a"]}, "text_2"),
        ("/v1/classify", {"input": []}, "input"),
        ("/v1/embeddings", {"input": "a"}, "model"),
    ],
)
async def test_an_invalid_request_is_refused(
    path: str, fields: dict[str, Any], param: str | None
) -> None:
    response = await post(path, fields, options=ServerOptions(max_inputs=2))

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
