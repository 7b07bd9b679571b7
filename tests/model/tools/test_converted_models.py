"""Directories that the converter writes open, and mean the weights that they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.errors import BadRequestError
from aiomlc.tools.convert import convert_weights
from aiomlc.tools.gen_config import gen_config
from aiomlc.tools.mlc_format import MLC_FORMATS, MLCFormat
from tests.model.families.test_quantized_models import logits, open_model
from tests.model.gguf_files import write_tiny_gguf
from tests.model.tiny_models import tiny_weights, write_model, write_safetensors
from tests.model.tools.fp8_reference import from_fp8, to_fp8, weight_scale
from tests.model.tools.group_reference import FORMATS, quantize_groups, unpack
from tests.model.tools.models import write_tiny
from tests.model.weight_files import from_bf16, to_bf16

Floats = NDArray[np.float32]
# `w4a8` has the bits of the opened checkpoint: test_progressive_files.py.
_OF_FLOATS = [
    name
    for name, mlc_format in MLC_FORMATS.items()
    if not mlc_format.source_method and not mlc_format.is_progressive
]
_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_VOCABULARY = ("model.embed_tokens.weight", "lm_head.weight")


def rounded(values: NDArray[Any], mlc_format: MLCFormat) -> Floats:
    """Return floats as an MLC directory stores them."""
    if mlc_format.dtype == "float16":
        return values.astype(np.float16).astype(np.float32)

    return from_bf16(to_bf16(values))


def fused(name: str) -> Floats:
    """Return the matrix that a weight of a layer is a part of."""
    *_, module, _ = name.split(".")
    group = next((parts for parts in _FUSED if module in parts), (module,))
    weights = tiny_weights("llama")
    return np.concatenate([weights[name.replace(module, part)] for part in group])


def dequantized(name: str, weight: Floats, mlc_format: MLCFormat) -> Floats:
    """Return what the directory has in place of a weight."""
    is_kept = mlc_format.keeps_vocabulary and name in _VOCABULARY
    is_quantized = mlc_format.bits > 0 or mlc_format.fp8 is not None
    if weight.ndim == 1 or not is_quantized or is_kept:
        return rounded(weight, mlc_format)

    if mlc_format.fp8 is not None:
        scale = weight_scale(fused(name)) if mlc_format.has_scale else np.float32(1)
        codes = to_fp8(rounded(weight, mlc_format) / scale, mlc_format.fp8)
        return from_fp8(codes, mlc_format.fp8) * from_bf16(to_bf16(np.array([scale])))

    form = FORMATS[mlc_format.name]
    words, scales = quantize_groups(weight, form)
    weights: Floats = unpack(words, rounded(scales, mlc_format), weight.shape[1], form)
    return weights


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("quantization", _OF_FLOATS)
def test_logits_are_those_of_the_dequantized_weights(tmp_path: Path, quantization: str) -> None:
    mlc_format = MLC_FORMATS[quantization]
    model, exact, output = tmp_path / "model", tmp_path / "float32", tmp_path / "out"
    write_tiny(model, "llama")
    write_model(exact, "llama")
    weights = {
        name: dequantized(name, weight, mlc_format)
        for name, weight in tiny_weights("llama").items()
    }
    write_safetensors(exact / "model.safetensors", weights)

    async def convert() -> None:
        await convert_weights(model, output, quantization=quantization)
        await gen_config(model, output, quantization=quantization, conv_template="chatml")

    anyio.run(convert)
    tokens: list[int] = []
    expected = logits(open_model(exact, "q0f32"), tokens)

    actual = logits(open_model(output), tokens)

    # Groups and bf16 round the activations, FP8 the weights to 16 bits; no KV cache is float32.
    is_rounded = mlc_format.bits > 0 or mlc_format.fp8 is not None or quantization == "q0bf16"
    limit = (2e-2 if is_rounded else 2e-3) * (expected.max() - expected.min())
    assert np.abs(actual - expected).max() <= limit


@pytest.mark.anyio
async def test_a_gguf_file_cannot_be_converted(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "model.gguf", "llama")

    with pytest.raises(BadRequestError, match="is a GGUF file"):
        await convert_weights(path, tmp_path / "out", quantization="q4f16_1")
    with pytest.raises(BadRequestError, match="is a GGUF file"):
        await gen_config(path, tmp_path / "out", quantization="q4f16_1", conv_template="chatml")

    assert not (tmp_path / "out").exists()
