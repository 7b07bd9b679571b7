"""The weights and vectors of tokens, and what is compared of two texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.embedding.dense import DenseLayer
from aiomlc.runtime.embedding.similarity import TextEmbedding, similarity
from aiomlc.runtime.embedding.token_heads import SparseVector, TokenHeads, read_token_heads
from tests.model.tiny_models import write_safetensors

VOCABULARY = {"<s>": 0, "</s>": 2, "<pad>": 1, "<unk>": 3, "[SEP]": 9}
F32 = np.float32


def sparse(**weights: float) -> SparseVector:
    indices = [ord(letter) for letter in weights]
    return SparseVector(np.array(indices, np.int32), np.array(list(weights.values()), F32))


def embedding(
    dense: list[float], sparse: SparseVector | None = None, rows: object = None
) -> TextEmbedding:
    vectors = None if rows is None else np.array(rows, F32).reshape(-1, 2)
    return TextEmbedding(np.array(dense, F32), sparse, vectors)


def test_a_token_has_its_largest_weight() -> None:
    heads = TokenHeads(unweighted=frozenset({0, 2}))

    vector = heads.sparse_vector([0, 9, 5, 9, 7, 2], np.array([8, 1, 0, 3, 2, 8], F32))

    assert vector.indices.tolist() == [7, 9]
    assert vector.values.tolist() == [2, 3]


def test_weights_are_not_negative_and_the_first_token_has_no_vector() -> None:
    layer = DenseLayer(np.array([[1, 0], [0, 2]], F32), np.array([-1, 1], F32), has_tanh=False)
    states = np.array([[5, 1], [0.5, 3]], F32)
    one = DenseLayer(layer.weight[:1], np.array([-1], F32), has_tanh=False)
    heads = TokenHeads(one, layer)

    assert heads.weights(states).tolist() == [4, 0]
    assert heads.vectors(states).tolist() == [[-0.5, 7]]


def test_similarity_by_vectors_of_texts_is_the_cosine() -> None:
    score = similarity(embedding([3, 4]), embedding([4, 3]), "dense")

    assert score == pytest.approx(24 / 25)
    assert similarity(embedding([3, 4]), embedding([0, 0]), "dense") == 0


def test_similarity_by_weights_sums_the_products_of_common_tokens() -> None:
    first, second = sparse(a=1.5, c=2, e=3), sparse(b=7, c=0.5, e=0.25)

    score = similarity(embedding([1], first), embedding([1], second), "sparse")

    assert score == 2 * 0.5 + 3 * 0.25
    assert similarity(embedding([1], first), embedding([1], sparse()), "sparse") == 0


def test_similarity_by_vectors_of_tokens_is_the_mean_of_the_best_cosines() -> None:
    query = embedding([1], rows=[[1, 0], [3, 4]])
    document = embedding([1], rows=[[0, 2], [4, 3], [-1, 0]])

    score = similarity(query, document, "multi_vector")

    assert score == pytest.approx((0.8 + 0.96) / 2)
    assert similarity(query, embedding([1], rows=[]), "multi_vector") == 0


@pytest.mark.parametrize(
    ("names", "unweighted"),
    [
        ({}, {0, 1, 2, 3}),
        ({"eos_token": "[SEP]", "pad_token": None}, {0, 1, 3, 9}),
        ({"eos_token": {"content": "[SEP]"}, "cls_token": "[CLS]"}, {1, 3, 9}),
    ],
)
def test_special_tokens_have_no_weight(
    tmp_path: Path, names: dict[str, object], unweighted: set[int]
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(names))
    tensors = {"weight": np.ones((1, 4), F32), "bias": np.zeros(1, F32)}
    write_safetensors(tmp_path / "sparse_linear.safetensors", tensors)

    heads = read_token_heads(ConfigFiles(tmp_path), 4, VOCABULARY.get)

    assert heads.unweighted == unweighted
    assert heads.sparse is not None
    assert heads.multi_vector is None


def test_a_model_without_the_files_has_no_heads(tmp_path: Path) -> None:
    heads = read_token_heads(ConfigFiles(tmp_path), 4, VOCABULARY.get)

    assert (heads.sparse, heads.multi_vector) == (None, None)


def test_the_layers_may_be_among_the_tensors_of_the_model(tmp_path: Path) -> None:
    weight, bias = np.array([[1, 2], [3, 4], [5, 6]], F32), np.array([7, 8, 9], F32)
    tensors = {"colbert_linear.weight": weight, "colbert_linear.bias": bias, "x": bias}
    write_safetensors(tmp_path / "model.safetensors", tensors)

    heads = read_token_heads(ConfigFiles(tmp_path), 2, VOCABULARY.get)

    assert heads.multi_vector is not None
    np.testing.assert_array_equal(heads.multi_vector.weight, weight)
    np.testing.assert_array_equal(heads.multi_vector.bias, bias)
    assert heads.sparse is None


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("sparse_linear", 2, r"weight: expected floats of shape \[1, 4\], got f32 \[2, 4\]"),
        ("colbert_linear", 0, r"bias: expected floats of shape \[3\], got f32 \[0\]"),
    ],
)
def test_wrong_shapes_are_refused(tmp_path: Path, name: str, rows: int, message: str) -> None:
    weight = np.ones((rows or 3, 4), F32)
    path = tmp_path / f"{name}.safetensors"
    write_safetensors(path, {"weight": weight, "bias": np.zeros(rows, F32)})

    with pytest.raises(ModelLoadError, match=message) as caught:
        read_token_heads(ConfigFiles(tmp_path), 4, VOCABULARY.get)

    assert caught.value.path == path
