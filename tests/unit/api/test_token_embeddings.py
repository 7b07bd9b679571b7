"""The weights and vectors of tokens: wire format, what asks for them, and their limit."""

from __future__ import annotations

import base64
import struct
from functools import partial
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.errors import BadRequestError
from aiomlc.testing import FakeEncoder, fake_loader

pytestmark = pytest.mark.timeout(20)


async def test_weights_and_vectors_of_tokens_are_returned_on_request() -> None:
    encoder = FakeEncoder(has_token_heads=True)
    async with AsyncMLCEngine(loader=fake_loader(encoder)) as engine:
        create = partial(engine.embeddings.create, input=[[4, 0, 3, 4]], normalize=False)
        plain = await create()
        sparse = await create(return_sparse=True)
        both = await create(return_sparse=True, return_multi_vector=True)

    (item,) = both.model_dump()["data"]
    assert item["sparse_embedding"] == {"indices": [3, 4], "values": [1, 2]}
    assert item["multi_vector"] == [[0, 1], [3, 2], [4, 3]]
    assert item["embedding"] == plain.data[0].embedding
    assert sparse.data[0].sparse_embedding == both.data[0].sparse_embedding
    assert "multi_vector" not in sparse.model_dump()["data"][0]
    assert set(plain.model_dump()["data"][0]) == {"object", "index", "embedding"}


async def test_vectors_of_tokens_are_normalized_and_encoded_like_those_of_texts() -> None:
    encoder = FakeEncoder(has_token_heads=True)
    async with AsyncMLCEngine(loader=fake_loader(encoder)) as engine:
        response = await engine.embeddings.create(
            input=[4, 3, 0], return_multi_vector=True, encoding_format="base64"
        )

    assert response.data[0].multi_vector is not None
    texts = [str(vector) for vector in response.data[0].multi_vector]
    vectors = [struct.unpack("<2f", base64.b64decode(text)) for text in texts]
    assert vectors == [pytest.approx((3 / 10**0.5, 1 / 10**0.5)), (0, 1)]


@pytest.mark.parametrize("field", ["return_sparse", "return_multi_vector"])
async def test_a_model_without_such_embeddings_is_named(field: str) -> None:
    options: dict[str, Any] = {field: True}
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        with pytest.raises(
            BadRequestError, match=r"the model 'fake' has no \w+_linear\.pt"
        ) as caught:
            await engine.embeddings.create(input="a", **options)

        assert caught.value.param == field
        options = {field: False}
        assert len((await engine.embeddings.create(input="a", **options)).data) == 1


async def test_vectors_of_too_many_tokens_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiomlc.api.embeddings.MAX_MULTI_VECTOR_NUMBERS", 8)
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder(has_token_heads=True))) as engine:
        create = partial(engine.embeddings.create, return_multi_vector=True)
        assert len((await create(input=[[1] * 3, [1] * 3])).data) == 2
        with pytest.raises(BadRequestError, match="at most 8 numbers in total, got 10"):
            await create(input=[[1] * 3, [1] * 4])
