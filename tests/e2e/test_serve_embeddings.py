"""MLC LLM's tests of its server's embeddings, written anew, against `aiomlc serve`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from tests.e2e.serve_process import ServerProcess, run_server
from tests.model.tiny_encoder import write_encoder

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server."""
    directory = tmp_path_factory.mktemp("embeddings")
    encoder = str(write_encoder(directory / "encoder"))
    with run_server(directory, "mock://echo", "--embedding-model", encoder) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    """OpenAI's client."""
    with server.openai() as client:
        yield client


def embed(client: openai.OpenAI, inputs: Any, **options: Any) -> list[list[float]]:  # noqa: ANN401
    """Return the embeddings of inputs."""
    response = client.embeddings.create(model="encoder", input=inputs, **options)
    assert [item.index for item in response.data] == list(range(len(response.data)))
    assert response.usage.prompt_tokens > 0
    return [item.embedding for item in response.data]


def test_both_models_are_listed(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} == {"mock://echo", "encoder"}


def test_embeddings_have_the_models_size_and_length_1(client: openai.OpenAI) -> None:
    vectors = embed(client, ["abc", "xyz", "abc"])
    assert [len(vector) for vector in vectors] == [48] * 3
    assert all(math.isclose(math.hypot(*vector), 1, rel_tol=1e-5) for vector in vectors)
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-6)
    assert vectors[0] != pytest.approx(vectors[1], abs=1e-3)


def test_formats_are_the_same_numbers(client: openai.OpenAI) -> None:
    assert embed(client, "abc") == embed(client, "abc", encoding_format="float")


def test_dimensions_are_kept_and_normalized(client: openai.OpenAI) -> None:
    (whole,), (part,) = (
        embed(client, "abc"),
        embed(client, "abc", dimensions=8),
    )
    norm = math.hypot(*whole[:8])
    assert part == pytest.approx([value / norm for value in whole[:8]], abs=1e-5)


def test_token_ids(client: openai.OpenAI) -> None:
    assert len(embed(client, [[2, 5, 3], [2, 6, 7, 3]])) == 2


@pytest.mark.parametrize("fields", [{}, {"model": "text-embedding-3-small"}])
def test_the_encoder_of_the_option_answers_to_other_names(
    server: ServerProcess, fields: dict[str, Any]
) -> None:
    response = httpx2.post(f"{server.url}/v1/embeddings", json={"input": "a", **fields})

    assert response.status_code == 200
    assert len(response.json()["data"]) == 1


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"input": [], "model": "encoder"}, 400),
        ({"input": "a", "model": "mock://echo"}, 400),
        ({"input": "a", "model": "encoder", "dimensions": 49}, 400),
    ],
)
def test_invalid_requests(server: ServerProcess, fields: dict[str, Any], status: int) -> None:
    response = httpx2.post(f"{server.url}/v1/embeddings", json=fields)
    assert response.status_code == status
    assert response.json()["error"]["message"]
