"""The activation and the labels of a classifier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.embedding.activation import activate, read_activation, read_labels

IDENTITY = "torch.nn.modules.linear.Identity"


def files(directory: Path, **fields: object) -> ConfigFiles:
    (directory / "config.json").write_text(json.dumps(fields))
    return ConfigFiles(directory)


@pytest.mark.parametrize(
    ("fields", "num_labels", "activation"),
    [
        ({}, 1, "sigmoid"),
        ({}, 3, "softmax"),
        ({"problem_type": "multi_label_classification"}, 3, "sigmoid"),
        ({"problem_type": "regression"}, 2, "identity"),
        ({"problem_type": "regression"}, 1, "sigmoid"),
        ({"sbert_ce_default_activation_function": IDENTITY}, 1, "identity"),
        ({"sentence_transformers": {"activation_fn": IDENTITY}}, 1, "identity"),
        ({"sentence_transformers": {"version": "5"}}, 1, "sigmoid"),
    ],
)
def test_the_activation_is_that_of_the_files(
    tmp_path: Path, fields: dict[str, Any], num_labels: int, activation: str
) -> None:
    assert read_activation(files(tmp_path, **fields), num_labels) == activation


def test_an_unknown_activation_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"must be one of Sigmoid, .*, got ReLU") as caught:
        read_activation(files(tmp_path, sentence_transformers={"activation_fn": "nn.ReLU"}), 1)

    assert caught.value.field == "sentence_transformers.activation_fn"


def test_labels_without_a_name_are_numbered(tmp_path: Path) -> None:
    labels = read_labels(files(tmp_path, id2label={"0": "no"}), 2)

    assert labels == ("no", "LABEL_1")


@pytest.mark.parametrize(
    ("activation", "expected"),
    [("identity", [-800, 0, 3]), ("sigmoid", [0, 0.5, 0.952574]), ("softmax", [0, 0.0474, 0.9526])],
)
def test_large_logits_do_not_overflow(activation: Any, expected: list[float]) -> None:  # noqa: ANN401
    scores = activate(np.array([-800, 0, 3], np.float32), activation)

    np.testing.assert_allclose(scores, expected, atol=1e-4)
