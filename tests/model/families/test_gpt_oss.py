"""gpt-oss: the limits of its gate, its sinks, and its stored formats, against transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, ModelLoadError, convert_weights
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from tests.model.families.engine_features import (
    FEATURES,
    check_output_of_each_alone,
    mixed_requests,
)
from tests.model.families.test_logits import check_float32
from tests.model.families.test_quantized_models import logits, open_model
from tests.model.gguf_files import add_tiny_text, write_gguf
from tests.model.make_reference import PROMPT, reference_model
from tests.model.mxfp4 import Mxfp4, dequantize_mxfp4, quantize_mxfp4
from tests.model.quantized_models import write_tensors
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights, write_model

Floats = NDArray[np.float32]
Weights = dict[str, Floats]
NAME = "gpt_oss"


def _write(directory: Path, weights: Mapping[str, NDArray[Any]]) -> Path:
    write_model(directory, NAME)
    write_tensors(directory / "model.safetensors", weights)
    return directory


def _transformers_logits(weights: Weights, tokens: list[int]) -> Floats:
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        rows = reference_model(NAME, weights)(torch.tensor([[*PROMPT, *tokens]])).logits[0]
    result: Floats = rows[len(PROMPT) - 1 :].float().numpy()
    return result


def _with_steep_gates(weights: Weights) -> Weights:
    """Return weights with which many gates and their factors are beyond the limits."""
    return {
        name: value * np.float32(4) if name.endswith("experts.gate_up_proj") else value
        for name, value in weights.items()
    }


def _with_sinks(weights: Weights, score: float) -> Weights:
    return {
        name: np.full_like(value, score) if name.endswith(".sinks") else value
        for name, value in weights.items()
    }


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize(
    "change",
    [_with_steep_gates, lambda w: _with_sinks(w, 4.0), lambda w: _with_sinks(w, -40.0)],
    ids=["clamped gates", "large sinks", "no sinks"],
)
def test_logits_equal_transformers(tmp_path: Path, change: Callable[[Weights], Weights]) -> None:
    weights = change(tiny_weights(NAME))
    tokens: list[int] = []

    actual = logits(open_model(_write(tmp_path / "model", weights), "q0f32"), tokens)

    check_float32(actual, _transformers_logits(weights, tokens))


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_experts_of_16_bits_are_transposed_exactly(tmp_path: Path, dtype: Any) -> None:  # noqa: ANN401
    stored = {name: value.astype(dtype) for name, value in tiny_weights(NAME).items()}
    widened = {name: value.astype(np.float32) for name, value in stored.items()}
    tokens: list[int] = []
    expected = logits(open_model(_write(tmp_path / "float32", widened), "q0f32"), tokens)

    actual = logits(open_model(_write(tmp_path / "stored", stored), "q0f32"), tokens)

    np.testing.assert_array_equal(actual, expected)


# ---- MXFP4 ----

_MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
_EXPERTS = re.compile(r".*\.experts\.(?:gate_up|down)_proj")


def _quantized_experts(weights: Weights) -> dict[str, Mxfp4]:
    """Return the experts as rows of outputs, quantized."""
    return {
        name: quantize_mxfp4(np.ascontiguousarray(value.swapaxes(1, 2)))
        for name, value in weights.items()
        if _EXPERTS.fullmatch(name)
    }


def _write_mxfp4(
    directory: Path, weights: Weights, changes: Mapping[str, NDArray[Any]] | None = None
) -> Weights:
    """Write a checkpoint with experts in MXFP4 and the rest in bfloat16; return what it means."""
    experts = _quantized_experts(weights)
    tensors: dict[str, NDArray[Any]] = {}
    meant: Weights = {}
    for name, value in weights.items():
        if name in experts:
            tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = experts[name]
            meant[name] = dequantize_mxfp4(experts[name]).swapaxes(1, 2)
        else:
            tensors[name] = value.astype(ml_dtypes.bfloat16)
            meant[name] = tensors[name].astype(np.float32)
    _write(directory, tensors | dict(changes or {}))
    config = TINY_CONFIGS[NAME] | {"quantization_config": _MXFP4}
    (directory / "config.json").write_text(json.dumps(config))
    return meant


@pytest.mark.usefixtures("model_cache")
def test_logits_of_mxfp4_are_those_of_the_dequantized_experts(tmp_path: Path) -> None:
    meant = _write_mxfp4(tmp_path / "quantized", tiny_weights(NAME))
    _write(tmp_path / "float32", meant)
    tokens: list[int] = []
    expected = logits(open_model(tmp_path / "float32", "q0f32"), tokens)

    actual = logits(open_model(tmp_path / "quantized"), tokens)

    # Activations are rounded to 8 bits, which may also change which experts are chosen.
    errors = np.abs(actual - expected).max(axis=1) / (expected.max() - expected.min())
    assert np.median(errors) <= 1e-2
    assert errors.max() <= 0.1


def test_transformers_dequantizes_mxfp4_to_the_same_numbers() -> None:
    torch = pytest.importorskip("torch")
    mxfp4 = pytest.importorskip("transformers.integrations.mxfp4")
    for stored in _quantized_experts(tiny_weights(NAME)).values():
        parts = [torch.from_numpy(part.copy()) for part in stored]

        theirs = mxfp4.convert_moe_packed_tensors(*parts, dtype=torch.float32)

        ours = dequantize_mxfp4(stored).swapaxes(1, 2)
        np.testing.assert_array_equal(theirs.numpy(), ours)


def _ggml_blocks(stored: Mxfp4) -> NDArray[np.uint8]:
    """Return blocks of GGUF's MXFP4: an exponent, and 16 bytes with inputs that are 16 apart."""
    codes = np.stack([stored.blocks & 15, stored.blocks >> 4], axis=-1)
    halves = codes.reshape(*codes.shape[:-2], 2, 16)
    packed = halves[..., 0, :] | halves[..., 1, :] << np.uint8(4)
    blocks = np.concatenate([stored.scales[..., None], packed], axis=-1)
    return blocks.reshape(*blocks.shape[:-2], -1)


def _encode(name: str, value: Floats) -> tuple[NDArray[Any], GGMLQuantizationType]:
    if name.endswith("_exps.weight"):
        return _ggml_blocks(quantize_mxfp4(value)), GGMLQuantizationType.MXFP4

    if name.endswith(".bias"):
        return value, GGMLQuantizationType.F32

    return value.astype(ml_dtypes.bfloat16).view(np.uint8), GGMLQuantizationType.BF16


@pytest.mark.usefixtures("model_cache")
def test_a_gguf_file_of_the_same_blocks_gives_the_same_bits(tmp_path: Path) -> None:
    meant = _write_mxfp4(tmp_path / "quantized", tiny_weights(NAME))
    # Files of llama.cpp's converter do not say which layers have windows.
    config = {name: value for name, value in TINY_CONFIGS[NAME].items() if name != "layer_types"}
    file = write_gguf(tmp_path / "a.gguf", config, meant, add_tiny_text, _encode)
    tokens: list[int] = []
    expected = logits(open_model(tmp_path / "quantized"), tokens)

    actual = logits(open_model(file), tokens)

    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("suffix", "change", "problem"),
    [
        ("blocks", lambda a: a[:, :, :1], r"expected \[8, 192, 2, 16\], got \[8, 192, 1, 16\]"),
        ("blocks", lambda a: a.astype(np.float32), "wrong dtype: expected u8, got f32"),
        ("scales", lambda a: a[:7], r"expected \[8, 192, 2\], got \[7, 192, 2\]"),
        ("scales", lambda a: a.view(np.int8), "wrong dtype: expected u8, got i8"),
    ],
)
def test_a_wrong_tensor_of_mxfp4_is_reported(
    tmp_path: Path,
    suffix: str,
    change: Callable[[NDArray[Any]], NDArray[Any]],
    problem: str,
) -> None:
    weights = tiny_weights(NAME)
    expert = "model.layers.1.mlp.experts.gate_up_proj"
    tensor = f"{expert}_{suffix}"
    stored = getattr(_quantized_experts(weights)[expert], suffix)
    _write_mxfp4(tmp_path / "model", weights, {tensor: np.ascontiguousarray(change(stored))})

    with pytest.raises(ModelLoadError, match=problem) as error:
        ModelFacts(find_model(tmp_path / "model")).check_tensors()

    assert error.value.tensor == tensor


@pytest.mark.usefixtures("model_cache")
def test_a_scale_that_is_no_number_is_reported(tmp_path: Path) -> None:
    weights = tiny_weights(NAME)
    expert = "model.layers.1.mlp.experts.down_proj"
    scales = _quantized_experts(weights)[expert].scales
    scales[2, 5, 1] = 255
    _write_mxfp4(tmp_path / "model", weights, {f"{expert}_scales": scales})

    with pytest.raises(ModelLoadError, match="a scale is not finite") as error:
        open_model(tmp_path / "model")

    assert error.value.tensor == f"{expert}_scales"


@pytest.mark.parametrize("suffix", ["", "_bias"])
def test_missing_experts_have_the_name_of_the_tensor_of_all(tmp_path: Path, suffix: str) -> None:
    weights = tiny_weights(NAME)
    del weights[missing := f"model.layers.0.mlp.experts.gate_up_proj{suffix}"]

    with pytest.raises(ModelLoadError, match="tensor is missing") as error:
        ModelFacts(find_model(_write(tmp_path / "model", weights))).check_tensors()

    assert error.value.tensor == missing


async def test_the_conversion_to_mlc_is_refused(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "model", NAME)

    with pytest.raises(BadRequestError, match="'gpt_oss' cannot be converted"):
        await convert_weights(directory, tmp_path / "out", quantization="q4f16_1")


# ---- The engine ----


@FEATURES
async def test_engine_features_do_not_change_the_output(
    model_cache: Path, tiny_directory: Callable[[str], Path], options: dict[str, Any]
) -> None:
    def open_engine(**more: Any) -> AsyncMLCEngine:  # noqa: ANN401
        config = EngineConfig(quantization="q4f16_1", num_threads=2, **more)
        return AsyncMLCEngine(tiny_directory(NAME), engine_config=config)

    requests = mixed_requests(80, with_choices=True)
    statistics = await check_output_of_each_alone(open_engine, requests, options)

    assert (statistics.preemptions > 0) == ("max_total_sequence_length" in options)
