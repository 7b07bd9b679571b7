"""Gemma models compute the same from directories of every format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from aiomlc.models import DecoderConfig, Parameter, decoder_parameters, read_description
from aiomlc.runtime.native.model import NativeModel
from benchmarks.native_model import open_native_model
from tests.model.conftest import OpenTiny
from tests.model.make_reference import PROMPT
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights, write_model, write_safetensors
from tests.model.weight_files import Array, mlc_record, mlc_words, quantize, write_mlc

Tiny = Callable[[str], Path]


@pytest.mark.parametrize("architecture", ["gemma", "gemma2", "gemma3_text"])
@pytest.mark.parametrize("quantization", ["q0f32", "q4f16_1"])
def test_an_mlc_directory_computes_the_same(
    tiny_directory: Tiny,
    open_tiny: OpenTiny,
    tmp_path: Path,
    architecture: str,
    quantization: str,
) -> None:
    config = read_description(tiny_directory(architecture)).config
    assert isinstance(config, DecoderConfig)
    directory = tmp_path / "mlc"
    write_model(directory, architecture)
    _convert_to_mlc(directory, architecture, config, quantization)

    actual = _logits(_open(directory, None))

    np.testing.assert_array_equal(actual, _logits(open_tiny(architecture, quantization)))


@pytest.mark.parametrize("quantization", ["q0f32", "q4f16_1"])
def test_a_multimodal_model_computes_the_same_as_its_text_decoder(
    open_tiny: OpenTiny, tmp_path: Path, quantization: str
) -> None:
    directory = tmp_path / "gemma3"
    write_model(directory, "gemma3_text")
    text = TINY_CONFIGS["gemma3_text"]
    config = {"model_type": "gemma3", "text_config": text | {"vision_config": {}}}
    (directory / "config.json").write_text(json.dumps(config))
    weights = {f"language_model.{n}": v for n, v in tiny_weights("gemma3_text").items()}
    vision = {"vision_tower.embeddings.weight": np.zeros((4, 4), np.float32)}
    write_safetensors(directory / "model.safetensors", weights | vision)

    actual = _logits(_open(directory, quantization))

    np.testing.assert_array_equal(actual, _logits(open_tiny("gemma3_text", quantization)))


def _convert_to_mlc(
    directory: Path, architecture: str, config: DecoderConfig, quantization: str
) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "config.json").unlink()
    inner = TINY_CONFIGS[architecture]
    outer = {"quantization": quantization, "context_window_size": 512, "sliding_window_size": -1}
    content = json.dumps(outer | {"model_type": inner["model_type"], "model_config": inner})
    (directory / "mlc-chat-config.json").write_text(content)
    weights = tiny_weights(architecture)
    records = []
    for parameter in decoder_parameters(config):
        offset = np.float32(parameter.weight_offset)
        values = [weights[source] + offset for source in parameter.sources]
        for name, stored in _mlc_tensors(parameter, values, quantization):
            records.append((mlc_record(name, stored), stored))
    write_mlc(directory, records)


def _mlc_tensors(
    parameter: Parameter, values: list[NDArray[np.float32]], quantization: str
) -> Iterator[tuple[str, Array]]:
    names = parameter.mlc_parts or (parameter.mlc_name,)
    parts = values if parameter.mlc_parts else [np.concatenate(values)]
    for name, part in zip(names, parts, strict=True):
        if parameter.kind == "vector":
            yield name, part
        elif quantization == "q0f32":
            yield f"{name}.weight", part
        else:
            levels, scales = quantize(part)
            yield f"{name}.q_weight", mlc_words(levels)
            yield f"{name}.q_scale", scales


def _open(directory: Path, quantization: str | None) -> NativeModel:
    options = EngineConfig(quantization=quantization, num_threads=2)
    return open_native_model(directory, options).native


def _logits(model: NativeModel) -> NDArray[np.float32]:
    model.add_sequence(9)
    logits = model.forward([(9, PROMPT)])
    model.remove_sequence(9)
    return logits
