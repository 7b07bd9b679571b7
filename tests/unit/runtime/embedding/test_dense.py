"""The dense layers of sentence-transformers."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.embedding.dense import read_dense

IDENTITY = "torch.nn.modules.linear.Identity"
WEIGHT = np.array([[1, 2, -1], [0.5, 0, 4]], np.float32)


def write_dense(directory: Path, tensors: dict[str, tuple[str, Any]], **changes: object) -> Path:
    config = {"in_features": 3, "out_features": 2, "bias": False, "activation_function": IDENTITY}
    (directory / "config.json").write_text(json.dumps(config | changes))
    header: dict[str, Any] = {}
    data = b""
    for name, (dtype, values) in tensors.items():
        offsets = [len(data), len(data) + values.nbytes]
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": offsets}
        data += values.tobytes()
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return directory


def as_bf16(values: Any) -> Any:  # noqa: ANN401
    return (values.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize(
    ("dtype", "weight"),
    [("F32", WEIGHT), ("F16", WEIGHT.astype(np.float16)), ("BF16", as_bf16(WEIGHT))],
)
def test_weights_of_every_float_type_are_read(tmp_path: Path, dtype: str, weight: Any) -> None:  # noqa: ANN401
    layer = read_dense(write_dense(tmp_path, {"linear.weight": (dtype, weight)}))

    np.testing.assert_array_equal(layer.apply(np.array([1, 1, 1], np.float32)), [2, 4.5])


def test_a_bias_and_a_hyperbolic_tangent_are_applied(tmp_path: Path) -> None:
    tensors = {
        "linear.weight": ("F32", WEIGHT),
        "linear.bias": ("F32", np.array([-2, 1], np.float32)),
    }
    changes = {"bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
    layer = read_dense(write_dense(tmp_path, tensors, **changes))

    outputs = layer.apply(np.array([1, 1, 1], np.float32))

    np.testing.assert_allclose(outputs, np.tanh([0, 5.5]), rtol=1e-6)


@pytest.mark.parametrize(
    ("tensors", "changes", "message"),
    [
        ({}, {}, r"linear.weight: expected floats of shape \[2, 3\], got none"),
        ({"linear.weight": ("F32", WEIGHT.T.copy())}, {}, r"got f32 \[3, 2\]"),
        ({"linear.weight": ("I32", WEIGHT.astype(np.int32))}, {}, "got i32"),
        ({"linear.weight": ("F32", WEIGHT)}, {"bias": True}, "linear.bias: expected floats"),
        ({}, {"activation_function": "torch.nn.ReLU"}, "must be one of Identity, Tanh, got ReLU"),
        ({}, {"in_features": 0}, 'field "in_features" must be >= 1'),
    ],
)
def test_what_is_wrong_with_a_layer_is_named(
    tmp_path: Path, tensors: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        read_dense(write_dense(tmp_path, tensors, **changes))
