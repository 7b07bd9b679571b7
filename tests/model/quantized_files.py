"""Matrices quantized as the checkpoints of other programs store them, from the definitions.

Every function quantizes a float32 matrix `[outputs, inputs]` and returns the stored tensors, by the
suffix that follows the module's name, and the numbers that they mean.
"""

from __future__ import annotations

__all__ = (
    "QUANTIZERS",
    "Quantized",
    "Quantizer",
    "awq",
    "compressed",
    "fp8",
    "gptq",
    "mlc_groups",
    "round_scales",
)

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]
Codes = NDArray[np.uint8]

#: The order of the integers in a word of AutoAWQ's `gemm`.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}


@dataclass(frozen=True)
class Quantized:
    """The stored tensors of a matrix, and the matrix that they mean."""

    tensors: Mapping[str, Array]
    weights: Floats


@dataclass(frozen=True)
class Quantizer:
    """A quantization of matrices, and the configuration that describes it."""

    apply: Callable[[Floats, np.random.Generator], Quantized]
    config: Mapping[str, Any]  #: The `quantization_config`.
    format: str  #: The packed format with the same numbers.


def _pack(codes: Array, bits: int) -> NDArray[np.uint32]:
    """Pack along the last axis into words without gaps, lowest bits first."""
    shape = codes.shape
    expanded = (codes[..., None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8)) & 1
    flat = expanded.reshape(*shape[:-1], shape[-1] * bits)
    padding = -flat.shape[-1] % 32
    flat = np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, padding)])
    packed = np.packbits(flat, axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view(np.uint32)


def _pack_by_word(codes: Array, bits: int) -> NDArray[np.uint32]:
    """Pack along the last axis, as many integers in a word as fit into it."""
    per_word = 32 // bits
    padding = -codes.shape[-1] % per_word
    padded = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, padding)])
    grouped = padded.reshape(*padded.shape[:-1], -1, per_word).astype(np.uint32)
    shifts = np.arange(per_word, dtype=np.uint32) * bits
    return np.asarray((grouped << shifts).sum(axis=-1, dtype=np.uint32))


def round_scales(scales: Floats, dtype: str) -> Array:
    """Return scales as a file of this dtype stores them."""
    return scales.astype({"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[dtype])


def _groups_of(inputs: int, group: int) -> NDArray[np.int64]:
    return np.arange(inputs) // (inputs if group < 0 else group)


def _asymmetric(
    weights: Floats, bits: int, of_input: Array, scale_dtype: str
) -> tuple[Codes, Codes, Array, Floats]:
    """Return codes, zero points `[outputs, groups]`, scales and the weights that they mean."""
    highest = 2**bits - 1
    count = int(of_input.max()) + 1
    low = np.stack([weights[:, of_input == g].min(axis=1) for g in range(count)], axis=1)
    high = np.stack([weights[:, of_input == g].max(axis=1) for g in range(count)], axis=1)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    scales = round_scales(np.maximum(high - low, 1e-5) / highest, scale_dtype)
    exact = scales.astype(np.float32)
    zeros = np.clip(np.rint(-low / exact), 0, highest).astype(np.uint8)
    steps, points = exact[:, of_input], zeros[:, of_input].astype(np.float32)
    codes = np.clip(np.rint(weights / steps) + points, 0, highest).astype(np.uint8)
    return codes, zeros, scales, steps * (codes.astype(np.float32) - points)


def _symmetric(
    weights: Floats, bits: int, of_input: Array, scale_dtype: str
) -> tuple[Codes, Array, Floats]:
    """Return codes whose zero point is half of their range, scales and the weights they mean."""
    half = 2 ** (bits - 1)
    count = int(of_input.max()) + 1
    largest = [np.abs(weights[:, of_input == g]).max(axis=1) for g in range(count)]
    scales = round_scales(np.maximum(np.stack(largest, axis=1), 1e-5) / (half - 0.5), scale_dtype)
    steps = scales.astype(np.float32)[:, of_input]
    codes = np.clip(np.rint(weights / steps) + half, 0, 2 * half - 1).astype(np.uint8)
    return codes, scales, steps * (codes.astype(np.float32) - half)


def awq(weights: Floats, _: np.random.Generator, *, group: int) -> Quantized:
    """AutoAWQ, version `gemm`: words along the outputs, in the order of its kernel."""
    of_input = _groups_of(weights.shape[1], group)
    codes, zeros, scales, exact = _asymmetric(weights, 4, of_input, "f16")

    def pack(values: Codes) -> NDArray[np.int32]:
        by_word = values.T.reshape(values.shape[1], -1, 8)[:, :, AWQ_ORDER]
        return _pack_by_word(by_word, 4)[:, :, 0].view(np.int32)

    tensors = {"qweight": pack(codes), "qzeros": pack(zeros), "scales": scales.T}
    return Quantized(tensors, exact)


def gptq(
    weights: Floats,
    random: np.random.Generator,
    *,
    bits: int,
    group: int,
    offset: int = 1,
    scale_dtype: str = "f16",
    by_activation: bool = False,
) -> Quantized:
    """AutoGPTQ: words along the inputs, zero points along the outputs and minus `offset`, modulo
    the number of codes.

    With `by_activation`, the groups consist of inputs in the order of their importance, which all
    matrices with the same inputs share.
    """
    inputs = weights.shape[1]
    of_input = _groups_of(inputs, group)
    if by_activation:
        of_input = of_input[np.random.default_rng(inputs).permutation(inputs)]
    codes, zeros, scales, exact = _asymmetric(weights, bits, of_input, scale_dtype)
    stored = (zeros - np.uint8(offset)) & np.uint8(2**bits - 1)
    tensors = {
        "qweight": np.ascontiguousarray(_pack(codes, bits).T).view(np.int32),
        "qzeros": _pack(stored.T, bits).view(np.int32),
        "scales": scales.T,
        "g_idx": of_input.astype(np.int32),
    }
    return Quantized(tensors, exact)


def compressed(
    weights: Floats,
    random: np.random.Generator,
    *,
    bits: int,
    group: int,
    symmetric: bool = True,
    packed: bool = True,
    packed_zeros: bool | None = None,
    by_activation: bool = False,
    scale_dtype: str = "bf16",
) -> Quantized:
    """Integers of compressed-tensors: `pack-quantized`, or `int-quantized` without `packed`.

    Zero points are packed as the values are, unless `packed_zeros` says otherwise.
    """
    inputs = weights.shape[1]
    of_input = _groups_of(inputs, group)
    if by_activation:
        of_input = of_input[np.random.default_rng(inputs).permutation(inputs)]
    tensors: dict[str, Array] = {}
    if symmetric:
        codes, scales, exact = _symmetric(weights, bits, of_input, scale_dtype)
    else:
        codes, zeros, scales, exact = _asymmetric(weights, bits, of_input, scale_dtype)
        words = np.ascontiguousarray(_pack_by_word(zeros.T, bits).T).view(np.int32)
        numbers = (zeros.astype(np.int16) - 2 ** (bits - 1)).astype(np.int8)
        are_packed = packed if packed_zeros is None else packed_zeros
        tensors["weight_zero_point"] = words if are_packed else numbers
    if packed:
        tensors["weight_packed"] = _pack_by_word(codes, bits).view(np.int32)
        tensors["weight_shape"] = np.array(weights.shape, np.int64)
    else:
        tensors["weight"] = (codes ^ 0x80).view(np.int8)
    tensors["weight_scale"] = scales
    if by_activation:
        tensors["weight_g_idx"] = of_input.astype(np.int32)
    return Quantized(tensors, exact)


def int8_tensor(weights: Floats, _: np.random.Generator) -> Quantized:
    """Bytes of compressed-tensors with one scale of the whole matrix."""
    scale = np.float32(np.abs(weights).max() / 127)
    values = np.clip(np.rint(weights / scale), -128, 127).astype(np.int8)
    tensors = {"weight": values, "weight_scale": np.array([scale], np.float32)}
    return Quantized(tensors, values.astype(np.float32) * scale)


def fp8(
    weights: Floats,
    _: np.random.Generator,
    *,
    block: tuple[int, int] | None = None,
    scale_name: str = "weight_scale",
    dtype: Any = ml_dtypes.float8_e4m3fn,  # noqa: ANN401
) -> Quantized:
    """FP8 with a scale of the tensor, or of each block; (1, -1) is one for each output."""
    rows, columns = weights.shape
    high, wide = block or (rows, columns)
    wide = columns if wide < 0 else wide
    scales = np.empty((-(-rows // high), -(-columns // wide)), np.float32)
    expanded = np.empty_like(weights)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            part = np.s_[i * high : (i + 1) * high, j * wide : (j + 1) * wide]
            scales[i, j] = np.abs(weights[part]).max() / np.float32(_LARGEST[np.dtype(dtype).name])
            expanded[part] = scales[i, j]
    stored = (weights / expanded).astype(dtype)
    name = "weight"
    tensors = {name: stored, scale_name: scales if block else scales.reshape(1)}
    return Quantized(tensors, stored.astype(np.float32) * expanded)


def mlc_groups(
    weights: Floats,
    _: np.random.Generator,
    *,
    bits: int,
    scale_dtype: str,
    transposed: bool = False,
) -> Quantized:
    """MLC LLM's group quantization, by outputs or, transposed, by inputs."""
    group, highest = (32, 7) if bits == 4 else (40, 3)
    rows, columns = weights.shape
    padded = np.pad(weights, ((0, 0), (0, -columns % group)))
    grouped = padded.reshape(rows, -1, group)
    scales = round_scales(np.abs(grouped).max(axis=2) / np.float32(highest), scale_dtype)
    exact = scales.astype(np.float32)[:, :, None]
    codes = np.clip(np.rint(grouped / exact) + highest, 0, 2 * highest).astype(np.uint8)
    weights = (exact * (codes.astype(np.float32) - highest)).reshape(rows, -1)[:, :columns]
    words = _pack_by_word(codes.reshape(rows, -1), bits)
    if transposed:
        words, scales = np.ascontiguousarray(words.T), np.ascontiguousarray(scales.T)
    return Quantized({"q_weight": words, "q_scale": scales}, np.ascontiguousarray(weights))


def _gptq_config(bits: int, group: int, **options: object) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": group, **options}


def _awq_config(group: int) -> dict[str, Any]:
    return {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm"}


def _compressed_config(kind: str, **weights: object) -> dict[str, Any]:
    settings = {"num_bits": 4, "type": "int", "strategy": "group", "symmetric": True, **weights}
    return {
        "quant_method": "compressed-tensors",
        "format": kind,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": settings}},
    }


def _with_int8_activations(config: dict[str, Any]) -> dict[str, Any]:
    activations = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
    config["config_groups"]["group_0"]["input_activations"] = activations
    return config


def _compressed(
    kind: str, bits: int, group: int, *, symmetric: bool = True, int8_activations: bool = False
) -> Quantizer:
    packed = kind == "pack-quantized"
    strategy = "channel" if group < 0 else "group"
    config = _compressed_config(
        kind,
        num_bits=bits,
        group_size=None if group < 0 else group,
        strategy=strategy,
        symmetric=symmetric,
    )
    if int8_activations:
        config = _with_int8_activations(config)
    apply = partial(compressed, bits=bits, group=group, symmetric=symmetric, packed=packed)
    if int8_activations and symmetric:
        return Quantizer(apply, config, "i8channel")

    zero = f"z{2 ** (bits - 1)}" if symmetric else "zp"
    return Quantizer(apply, config, f"u{bits}g{128 if group < 0 else group}bf16{zero}")


#: By name: Hugging Face's methods.
QUANTIZERS: Mapping[str, Quantizer] = {
    "awq_g32": Quantizer(partial(awq, group=32), _awq_config(32), "u4g32f16zp"),
    "awq_g128": Quantizer(partial(awq, group=128), _awq_config(128), "u4g128f16zp"),
    "gptq_4_g64": Quantizer(partial(gptq, bits=4, group=64), _gptq_config(4, 64), "u4g64f16zp"),
    "gptq_4_channel": Quantizer(
        partial(gptq, bits=4, group=-1), _gptq_config(4, -1), "u4g128f16zp"
    ),
    "gptq_3_g128": Quantizer(partial(gptq, bits=3, group=128), _gptq_config(3, 128), "u3g128f16zp"),
    "gptq_2_g32": Quantizer(partial(gptq, bits=2, group=32), _gptq_config(2, 32), "u2g32f16zp"),
    "gptq_8_g128": Quantizer(partial(gptq, bits=8, group=128), _gptq_config(8, 128), "u8g128f16zp"),
    "gptq_v2": Quantizer(
        partial(gptq, bits=4, group=128, offset=0, scale_dtype="bf16"),
        _gptq_config(4, 128, checkpoint_format="gptq_v2", dynamic={"-:.*lm_head": {}}),
        "u4g128bf16zp",
    ),
    "gptq_ordered": Quantizer(
        partial(gptq, bits=4, group=32, by_activation=True),
        _gptq_config(4, 32, desc_act=True),
        "u4g32f16zp",
    ),
    "w4a16_group": _compressed("pack-quantized", 4, 128),
    "w4a16_channel": _compressed("pack-quantized", 4, -1),
    "w4a16_asymmetric": _compressed("pack-quantized", 4, 32, symmetric=False),
    "w8a16_group": _compressed("pack-quantized", 8, 128),
    "w8a16_channel": _compressed("int-quantized", 8, -1),
    "w8a8": _compressed("int-quantized", 8, -1, int8_activations=True),
    "w8a8_asymmetric": _compressed("int-quantized", 8, -1, symmetric=False, int8_activations=True),
    "w8a8_tensor": Quantizer(
        int8_tensor,
        _with_int8_activations(_compressed_config("int-quantized", num_bits=8, strategy="tensor")),
        "i8channel",
    ),
    "fp8_tensor": Quantizer(
        fp8,
        _compressed_config("float-quantized", num_bits=8, type="float", strategy="tensor"),
        "bf16",
    ),
    "fp8_channel": Quantizer(
        partial(fp8, block=(1, -1)),
        _compressed_config("float-quantized", num_bits=8, type="float", strategy="channel"),
        "bf16",
    ),
    "fp8_block": Quantizer(
        partial(fp8, block=(64, 96), scale_name="weight_scale_inv"),
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [64, 96]},
        "bf16",
    ),
}
