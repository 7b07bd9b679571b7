"""Models with LayerNorm compute the same from MLC and Hugging Face directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from aiomlc.models import DecoderConfig, Parameter, decoder_parameters, read_description
from aiomlc.models.parameters.parameter import source_runs
from aiomlc.runtime.native.model import NativeModel
from benchmarks.native_model import open_native_model
from tests.model import tiny_layer_norm
from tests.model.conftest import OpenTiny
from tests.model.make_reference import PROMPT
from tests.model.tiny_models import TINY_CONFIGS, Weights, tiny_weights, write_model
from tests.model.weight_files import mlc_record, write_mlc


@pytest.mark.parametrize(
    "architecture",
    [name for name in tiny_layer_norm.CONFIGS if name not in ("cohere", "nemotron")],
)
def test_an_mlc_directory_computes_the_same(
    tiny_directory: Callable[[str], Path],
    open_tiny: OpenTiny,
    tmp_path: Path,
    architecture: str,
) -> None:
    expected = open_tiny(architecture, "q0f32")
    config = read_description(tiny_directory(architecture)).config
    assert isinstance(config, DecoderConfig)
    directory = _write_mlc(tmp_path / "mlc", architecture, config)
    options = EngineConfig(num_threads=2)

    opened = open_native_model(directory, options)

    np.testing.assert_array_equal(_logits(opened.native), _logits(expected))


def _write_mlc(directory: Path, architecture: str, config: DecoderConfig) -> Path:
    write_model(directory, architecture)
    weights = tiny_weights(architecture)
    tensors = []
    for parameter in decoder_parameters(config):
        value = _fuse(parameter, weights)
        suffix = ".weight" if parameter.kind == "matrix" else ""
        tensors.append((mlc_record(parameter.mlc_name + suffix, value), value))
    (directory / "model.safetensors").unlink()
    (directory / "config.json").unlink()
    inner = TINY_CONFIGS[architecture]
    outer = {"quantization": "q0f32", "context_window_size": 512, "model_config": inner}
    content = json.dumps(outer | {"model_type": inner["model_type"]})
    (directory / "mlc-chat-config.json").write_text(content)
    write_mlc(directory, tensors)
    return directory


def _fuse(parameter: Parameter, weights: Weights) -> NDArray[np.float32]:
    value = np.concatenate([weights[source] for source in parameter.sources])
    if parameter.row_order is not None:
        runs = source_runs(parameter.row_order, len(value))
        value = np.concatenate([value[start : start + count] for start, count in runs])
    return np.ascontiguousarray(value)


def _logits(model: NativeModel) -> NDArray[np.float32]:
    model.add_sequence(9)
    logits = model.forward([(9, PROMPT)])
    model.remove_sequence(9)
    return logits
