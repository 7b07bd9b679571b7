"""Tests of `AsyncEmbeddingEngine`."""

from __future__ import annotations

import pytest

from aiomlc import AsyncEmbeddingEngine
from aiomlc.errors import BadRequestError, EngineClosedError
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader

pytestmark = pytest.mark.timeout(20)


def test_embed_returns_normalized_vectors_and_the_number_of_tokens() -> None:
    engine = AsyncEmbeddingEngine(loader=fake_loader(FakeEncoder()), pooling_strategy="last")
    vectors, num_tokens = engine.embed(["ab", "c" * 20])
    engine.terminate()

    assert vectors[0] == pytest.approx([1 / 3**0.5] * 3)
    assert (len(vectors), num_tokens) == (2, 2 + 16)
    with pytest.raises(EngineClosedError):
        engine.embed(["a"])


async def test_async_embed_returns_the_same_as_embed() -> None:
    engine = AsyncEmbeddingEngine(loader=fake_loader(FakeEncoder()))
    vectors, _ = await engine.async_embed(["ab"])

    assert vectors == engine.embed(["ab"])[0]
    engine.terminate()


def test_the_attributes_of_mlc_llms_class_exist() -> None:
    engine = AsyncEmbeddingEngine(
        None, __file__, "cpu", pooling_strategy="cls", loader=fake_loader(FakeEncoder())
    )
    metadata = {"model_type": "encoder", "pooling_strategy": "cls", "normalize": True}

    assert engine.embedding_metadata == metadata
    assert {name: getattr(engine, name) for name in metadata} == metadata
    assert engine.device == "cpu"
    assert engine.tokenizer.encode("ab") == [0, 1]
    engine.terminate()


def test_no_input_gives_no_vector() -> None:
    engine = AsyncEmbeddingEngine(loader=fake_loader(FakeEncoder()))

    assert engine.embed([]) == ([], 0)
    engine.terminate()


def test_a_decoder_and_an_unknown_pooling_are_rejected() -> None:
    with pytest.raises(BadRequestError, match="decoder"):
        AsyncEmbeddingEngine(loader=fake_loader(FakeCore()))
    with pytest.raises(
        BadRequestError, match="pooling_strategy must be one of mean, cls, last, got 'max'"
    ):
        AsyncEmbeddingEngine(
            loader=fake_loader(FakeEncoder()),
            pooling_strategy="max",  # type: ignore[arg-type]
        )
