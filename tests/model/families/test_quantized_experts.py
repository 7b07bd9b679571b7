"""Logits of mixtures of experts whose experts are quantized one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from aiomlc.errors import ModelLoadError
from tests.model.families.test_quantized_models import logits, open_model
from tests.model.quantized_files import QUANTIZERS, Quantizer
from tests.model.quantized_models import write_tensors
from tests.model.tiny_experts import EXPERT_CONFIGS
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights, write_model
from tests.model.weight_files import Array

# Those whose groups divide the inputs of the tiny models.
_NAMES = ("awq_g32", "gptq_2_g32", "gptq_4_channel", "w4a16_asymmetric", "w8a8", "fp8_block")
# What programs that quantize leave as it is: embedding, head, routers and norms.
_QUANTIZED = re.compile(r".*\.(?:self_attn|mlp|block_sparse_moe)\..+(?:_proj|w[123])\.weight")


def write_quantized(
    directory: Path, architecture: str, quantizer: Quantizer, kept: str = "$"
) -> dict[str, Array]:
    """Write a checkpoint whose matrices are quantized, except those whose names match `kept`.

    Returns:
        The weights that it means.
    """
    random = np.random.Generator(np.random.PCG64(7))
    tensors: dict[str, Array] = {}
    weights: dict[str, Array] = {}
    for name, value in tiny_weights(architecture).items():
        if _QUANTIZED.fullmatch(name) is None or re.match(kept, name):
            weights[name] = tensors[name] = value
            continue

        quantized = quantizer.apply(value, random)
        weights[name] = quantized.weights
        module = name.removesuffix("weight")
        tensors |= {f"{module}{part}": array for part, array in quantized.tensors.items()}
    write(directory, architecture, tensors, quantizer.config)
    return weights


def write(
    directory: Path,
    architecture: str,
    tensors: Mapping[str, Array],
    quantization: Mapping[str, object] | None = None,
) -> None:
    write_model(directory, architecture)
    config = TINY_CONFIGS[architecture]
    if quantization is not None:
        config = {**config, "quantization_config": dict(quantization)}
    (directory / "config.json").write_text(json.dumps(config))
    write_tensors(directory / "model.safetensors", tensors)


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("architecture", EXPERT_CONFIGS)
@pytest.mark.parametrize("name", _NAMES)
def test_logits_are_those_of_the_dequantized_experts(
    tmp_path: Path, architecture: str, name: str
) -> None:
    weights = write_quantized(tmp_path / "quantized", architecture, QUANTIZERS[name])
    write(tmp_path / "float32", architecture, weights)
    tokens: list[int] = []
    expected = logits(open_model(tmp_path / "float32", "q0f32"), tokens)

    actual = logits(open_model(tmp_path / "quantized"), tokens)

    # Activations are rounded to 8 bits, which may also change which experts are chosen.
    errors = np.abs(actual - expected).max(axis=1) / (expected.max() - expected.min())
    assert np.median(errors) <= 2e-2
    assert errors.max() <= 0.15


@pytest.mark.usefixtures("model_cache")
def test_experts_with_ordered_inputs_are_refused(tmp_path: Path) -> None:
    write_quantized(tmp_path / "model", "qwen3_moe", QUANTIZERS["gptq_ordered"])

    with pytest.raises(ModelLoadError, match=r"\(desc_act\) are not supported in experts") as error:
        open_model(tmp_path / "model")

    assert error.value.tensor == "model.layers.0.mlp.experts.0.gate_proj.qweight"


@pytest.mark.usefixtures("model_cache")
def test_experts_in_several_formats_are_refused(tmp_path: Path) -> None:
    write_quantized(
        tmp_path / "model", "mixtral", QUANTIZERS["awq_g32"], kept=r".*layers\.1\..*experts\.2\.w2"
    )

    with pytest.raises(ModelLoadError, match="must have the same format: expected u4") as error:
        open_model(tmp_path / "model")

    assert error.value.tensor == "model.layers.1.block_sparse_moe.experts.2.w2.weight"
