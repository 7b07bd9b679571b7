"""A GGUF file of each architecture is the same model as the directory that it was made from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from aiomlc.errors import ModelLoadError
from aiomlc.models import (
    AttentionConfig,
    DecoderConfig,
    Parameter,
    decoder_parameters,
    read_description,
)
from aiomlc.models.config.layers import GatedDeltaConfig, LayerConfig
from aiomlc.models.parameters.parameter import source_runs
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.weights.formats.gguf import read_gguf_source
from aiomlc.weights.formats.safetensors import read_safetensors
from aiomlc.weights.formats.source import Source, SourceTensor
from tests.model.gguf_files import add_tiny_text, write_gguf, write_tiny_gguf
from tests.model.tiny_models import TINY_CONFIGS, random_weights, write_model

# These have no architecture of their own in GGUF, or windows that GGUF does not store.
_OTHERS = ("granitemoehybrid", "helium", "mistral_window", "qwen2_window")
# What a file of the architecture cannot say otherwise.
_CHANGES: Mapping[str, dict[str, Any]] = {
    "mixtral": {"sliding_window": None},
    "smollm3": {"no_rope_layer_interval": 4},
}
_names = pytest.mark.parametrize("name", [name for name in TINY_CONFIGS if name not in _OTHERS])


@_names
def test_the_config_is_that_of_the_original_model(tmp_path: Path, name: str) -> None:
    directory, file = _write_both(tmp_path, name)

    original, stored = _config(directory), _config(file)

    assert stored.checkpoint.hf_norm_offset == 0.0
    layout = stored.checkpoint.hf_qkv_layout
    fused = {"qwen3_next": ("in_proj_ba",)}.get(name, original.checkpoint.hf_fused)
    expected = replace(
        original,
        model_type={"internlm3": "llama", "mistral": "llama"}.get(name, original.model_type),
        checkpoint=replace(
            original.checkpoint, hf_fused=fused, hf_qkv_layout=layout, hf_norm_offset=0.0
        ),
        layers=tuple(_in_gguf(name, layer) for layer in original.layers),
    )
    _assert_equal_but_for_rounding(stored, expected)


@_names
def test_the_weights_are_those_of_the_original_model(tmp_path: Path, name: str) -> None:
    directory, file = _write_both(tmp_path, name)
    original, stored = read_safetensors(directory), read_gguf_source(file)

    parameters = decoder_parameters(_config(directory))
    for expected, parameter in zip(parameters, decoder_parameters(_config(file)), strict=True):
        if ".linear_attn." in parameter.name and "norm" not in parameter.name:
            continue  # Their heads have another order, which the test of logits proves.

        actual = _read_parameter(parameter, stored)
        np.testing.assert_array_equal(actual, _read_parameter(expected, original), parameter.name)


@_names
def test_tensors_have_the_names_of_the_file(tmp_path: Path, name: str) -> None:
    source = read_gguf_source(_write_both(tmp_path, name)[1])

    for graph_name, tensor in source.tensors.items():
        if "attn_qkv" not in tensor.name or "qkv" in graph_name:  # Not rows of a fused tensor.
            # Some architectures call the same norm otherwise.
            expected = {tensor.name, tensor.name.replace("post_attention_norm", "ffn_norm")}
            assert source.name_in_file(graph_name) in expected


@pytest.mark.parametrize(
    ("name", "dropped", "missing"),
    [
        ("qwen3", "model.layers.1.self_attn.o_proj.weight", "blk.1.attn_output.weight"),
        ("mixtral", "model.norm.weight", "output_norm.weight"),
    ],
)
def test_a_missing_tensor_has_the_name_of_the_file(
    tmp_path: Path, name: str, dropped: str, missing: str
) -> None:
    config = TINY_CONFIGS[name] | _CHANGES.get(name, {})
    weights = random_weights(config, seed=1)
    del weights[dropped]
    path = write_gguf(tmp_path / "a.gguf", config, weights, add_tiny_text)

    with pytest.raises(ModelLoadError, match="tensor is missing") as error:
        ModelFacts(find_model(path)).check_tensors()

    assert error.value.tensor == missing
    assert error.value.path == path


def test_a_type_that_cannot_be_computed_is_refused_by_its_tensor(tmp_path: Path) -> None:
    config = TINY_CONFIGS["llama"] | {"intermediate_size": 256}
    weights = random_weights(config, seed=1)

    def encode(name: str, value: NDArray[np.float32]) -> tuple[NDArray[Any], Type]:
        if "ffn_down" not in name:
            return value, Type.F32

        return np.zeros((len(value), 66), np.uint8), Type.IQ2_XXS

    path = write_gguf(tmp_path / "a.gguf", config, weights, add_tiny_text, encode)

    with pytest.raises(ModelLoadError, match=r"blk.0.ffn_down.weight: .* or MXFP4, got IQ2_XXS"):
        ModelFacts(find_model(path)).check_tensors()


def _write_both(root: Path, name: str) -> tuple[Path, Path]:
    changes = _CHANGES.get(name, {})
    directory = write_model(root / name, name)
    (directory / "config.json").write_text(json.dumps(TINY_CONFIGS[name] | changes))
    return directory, write_tiny_gguf(root / f"{name}.gguf", name, **changes)


def _config(path: Path) -> DecoderConfig:
    config = read_description(path).config
    assert isinstance(config, DecoderConfig)
    return config


def _in_gguf(name: str, layer: LayerConfig) -> LayerConfig:
    mixer = layer.mixer
    if not isinstance(mixer, GatedDeltaConfig):
        return layer

    order: Literal["grouped", "tiled"] = "grouped" if name == "qwen3_next" else "tiled"
    return replace(layer, mixer=replace(mixer, head_order=order, rates="negative"))


def _assert_equal_but_for_rounding(actual: DecoderConfig, expected: DecoderConfig) -> None:
    """Compare two configs; numbers that a file stores in 32 bits may be rounded to these.

    Files store the result of Llama 3's RoPE scaling, and so the frequencies are compared.
    """
    for one, other in zip(actual.attention, expected.attention, strict=True):
        assert _rotation(one) == pytest.approx(_rotation(other), rel=1e-6)
    values = [_flattened(asdict(config.with_attention(rope=None))) for config in (actual, expected)]
    for (name, left), (expected_name, right) in zip(*values, strict=True):
        assert name == expected_name
        assert left == (pytest.approx(right, rel=1e-7) if isinstance(right, float) else right), name


def _flattened(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Yield the fields of a config, and of those inside it, with their names."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flattened(item, f"{name}.{key}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _flattened(item, f"{name}[{index}]")
    else:
        yield name, value


def _rotation(attention: AttentionConfig) -> list[float]:
    rope = attention.rope
    if rope is None:
        return []

    return [*rope.inverse_frequencies(attention.head_dim), rope.attention_factor]


def _read_parameter(parameter: Parameter, source: Source) -> NDArray[np.float32]:
    """Return the rows of a parameter in the order of the graph."""
    is_fused = parameter.fused_source in source.tensors
    names = (parameter.fused_source,) if is_fused else parameter.sources
    order = parameter.fused_row_order if is_fused else parameter.row_order
    tensors = [_read(source.tensors[name]) for name in names]
    if is_fused and parameter.fused_layout == "inputs" and parameter.kind == "matrix":
        tensors = [tensor.swapaxes(1, 2) for tensor in tensors]
    rows = np.concatenate([tensor.reshape(-1, *parameter.shape[1:]) for tensor in tensors])
    if order is not None:
        runs = source_runs(order, len(rows))
        rows = np.concatenate([rows[start : start + count] for start, count in runs])
    return rows + np.float32(parameter.weight_offset)


def _read(tensor: SourceTensor) -> NDArray[np.float32]:
    assert tensor.dtype == "f32"
    count = int(np.prod(tensor.shape))
    values = np.fromfile(tensor.path, np.float32, count, offset=tensor.offset)
    return values.reshape(tensor.shape)
