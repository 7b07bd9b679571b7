"""BGE M3's three embeddings are those of FlagEmbedding's definitions, from transformers' states."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine
from aiomlc.api.protocol.embedding import Embedding
from aiomlc.errors import ModelLoadError
from tests.model.make_encoder_reference import REFERENCE
from tests.model.tiny_encoders import (
    TEXTS,
    TOKEN_HEADS,
    encoded_texts,
    write_encoder,
    write_token_heads,
)

Floats = NDArray[np.float64]
_SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "eos_token": "[SEP]"}
_SPECIAL_IDS = {0, 1, 2, 3}
_SINGLE = [index for index, text in enumerate(TEXTS) if isinstance(text, str)]
SENTENCES = [str(TEXTS[index]) for index in _SINGLE]


def write_bge_m3(directory: Path) -> Path:
    (directory / "1_Pooling").mkdir(parents=True)
    files: dict[str, object] = {
        "modules": [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}],
        "1_Pooling/config": {"pooling_mode_cls_token": True},
        "tokenizer_config": _SPECIAL,
    }
    write_encoder(directory, "xlm_roberta", **files)
    for name in TOKEN_HEADS:
        shutil.copy(REFERENCE / f"{name}.pt", directory)
    return directory


@pytest.fixture(scope="session")
def bge_m3(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bge_m3(tmp_path_factory.mktemp("bge") / "m3")


class Reference:
    """What FlagEmbedding computes for one sentence, in float64."""

    def __init__(self, ids: list[int], states: Floats) -> None:
        weights = np.maximum(_linear("sparse_linear", states)[:, 0], 0)
        self.sparse: dict[int, float] = {}
        for token, weight in zip(ids, weights, strict=True):
            if token not in _SPECIAL_IDS and weight > self.sparse.get(token, 0):
                self.sparse[token] = float(weight)
        vectors = _linear("colbert_linear", states[1:])
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        self.dense = states[0] / np.linalg.norm(states[0])


def _linear(name: str, states: Floats) -> Floats:
    weight, bias = (TOKEN_HEADS[name][key].astype(np.float64) for key in ("weight", "bias"))
    product: Floats = states @ weight.T + bias
    return product


def references() -> list[Reference]:
    inputs = encoded_texts()
    with np.load(REFERENCE / "encoders.npz") as file:
        rows = file["xlm_roberta"].astype(np.float64)
    parts = np.split(rows, np.cumsum([len(each.ids) for each in inputs])[:-1])
    return [Reference(list(inputs[index].ids), parts[index]) for index in _SINGLE]


def lexical(query: Reference, document: Reference) -> float:
    return sum(query.sparse[t] * w for t, w in document.sparse.items() if t in query.sparse)


def late_interaction(query: Reference, document: Reference) -> float:
    best: Floats = (query.vectors @ document.vectors.T).max(axis=1)
    return float(best.sum() / len(query.vectors))


def assert_equal(actual: Embedding, expected: Reference) -> None:
    np.testing.assert_allclose(np.array(actual.embedding), expected.dense, atol=1e-5)
    assert actual.sparse_embedding is not None
    assert actual.sparse_embedding.indices == sorted(expected.sparse)
    values = [expected.sparse[token] for token in sorted(expected.sparse)]
    np.testing.assert_allclose(actual.sparse_embedding.values, values, atol=1e-5)
    np.testing.assert_allclose(np.array(actual.multi_vector), expected.vectors, atol=1e-5)


async def test_the_embeddings_are_those_of_the_definition(bge_m3: Path) -> None:
    async with AsyncMLCEngine(bge_m3) as engine:
        response = await engine.embeddings.create(
            input=SENTENCES, return_sparse=True, return_multi_vector=True
        )
        alone = await engine.embeddings.create(
            input=SENTENCES[1], return_sparse=True, return_multi_vector=True
        )

    expected = references()
    assert any(each.sparse for each in expected)
    for actual, reference in zip(response.data, expected, strict=True):
        assert_equal(actual, reference)
    assert alone.data[0] == response.data[1].model_copy(update={"index": 0})


@pytest.mark.parametrize(
    ("by", "score"),
    [
        (None, lambda query, document: float(query.dense @ document.dense)),
        ("sparse", lexical),
        ("multi_vector", late_interaction),
    ],
)
async def test_pairs_have_the_scores_of_the_definition(
    bge_m3: Path, by: str | None, score: Callable[[Reference, Reference], float]
) -> None:
    pairs = [(0, 1), (1, 2), (2, 1), (1, 1)]
    texts = [(SENTENCES[first], SENTENCES[second]) for first, second in pairs]
    options = {} if by is None else {"similarity": by}
    async with AsyncMLCEngine(bge_m3) as engine:
        response = await engine.score(texts, extra_body=options)
        ranked = await engine.rerank(SENTENCES[1], SENTENCES, extra_body=options)

    each = references()
    expected = [score(each[first], each[second]) for first, second in pairs]
    assert [item.score for item in response.data] == pytest.approx(expected, abs=1e-5)
    scores = [score(each[1], document) for document in each]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    assert [result.index for result in ranked.results] == order


async def test_the_layers_may_be_safetensors(bge_m3: Path, tmp_path: Path) -> None:
    directory = write_bge_m3(tmp_path / "model")
    for name in TOKEN_HEADS:
        (directory / f"{name}.pt").unlink()
    write_token_heads(directory)
    async with AsyncMLCEngine(directory) as engine:
        response = await engine.embeddings.create(
            input=SENTENCES, return_sparse=True, return_multi_vector=True
        )

    for actual, reference in zip(response.data, references(), strict=True):
        assert_equal(actual, reference)


async def test_a_layer_that_is_no_dictionary_of_tensors_is_refused(
    bge_m3: Path, tmp_path: Path
) -> None:
    directory = write_bge_m3(tmp_path / "model")
    path = directory / "sparse_linear.pt"
    path.write_bytes(b"cos\nsystem\n(S'false'\ntR.")

    with pytest.raises(ModelLoadError, match=r"sparse_linear.pt: is not a file of PyTorch 1\.6"):
        async with AsyncMLCEngine(directory):
            pass
