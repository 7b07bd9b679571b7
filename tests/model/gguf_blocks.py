"""Weights as blocks of GGUF's types, quantized or random where the package cannot quantize."""

from __future__ import annotations

__all__ = ("TYPE_SETS", "dequantized_values", "encoder")

from collections.abc import Mapping

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from tests.model.gguf_files import Encode

#: Types by the names of tensors, of which every type is in one set at least. The second set has
#: those of llama.cpp's Q4_K_M.
TYPE_SETS: Mapping[str, Mapping[str, Type]] = {
    "legacy": {
        "token_embd": Type.Q5_1,
        "attn_q": Type.Q4_0,
        "attn_k": Type.Q5_0,
        "attn_v": Type.Q8_0,
        "attn_output": Type.Q4_1,
        "ffn_gate": Type.Q5_1,
        "ffn_up": Type.Q5_1,
        "ffn_down": Type.Q4_1,
        "output": Type.Q8_0,
    },
    "Q4_K_M": {"attn_v": Type.Q6_K, "ffn_down": Type.Q6_K, "output": Type.Q6_K, "": Type.Q4_K},
    "few bits": {
        "token_embd": Type.F16,
        "attn_q": Type.Q3_K,
        "attn_k": Type.Q2_K,
        "attn_output": Type.IQ4_NL,
        "ffn_gate": Type.MXFP4,
        "ffn_up": Type.MXFP4,
        "output": Type.BF16,
        "": Type.Q5_K,
    },
    "Q8_0": {"": Type.Q8_0},
}
# The offset of the scale in a block, and that of the minimum with its ratio to the scale for which
# random codes have a mean of zero.
_FACTORS: Mapping[Type, tuple[tuple[int, float], ...]] = {
    Type.Q2_K: ((80, 1.0), (82, 1.5)),
    Type.Q3_K: ((108, 1.0),),
    Type.Q4_K: ((0, 1.0), (2, 7.5)),
    Type.Q5_K: ((0, 1.0), (2, 15.5)),
    Type.Q6_K: ((208, 1.0),),
    Type.IQ4_NL: ((0, 1.0),),
}


def encoder(types: Mapping[str, Type]) -> Encode:
    """Return the encoding of tensors by their names; "" is the type of all others."""

    def encode(name: str, value: NDArray[np.float32]) -> tuple[NDArray[np.uint8], Type]:
        part = name.removesuffix(".weight").rpartition(".")[2]
        kind = types[part] if part in types else types[""]
        if kind in _FACTORS:
            return _random_blocks(kind, value, seed=sum(name.encode())), kind

        return gguf.quantize(value, kind), kind

    return encode


def dequantized_values(encode: Encode) -> Encode:
    """Return the encoding that stores the numbers of another one as F32."""

    def values(name: str, value: NDArray[np.float32]) -> tuple[NDArray[np.float32], Type]:
        data, kind = encode(name, value)
        return gguf.dequantize(data, kind).reshape(value.shape), Type.F32

    return values


def _random_blocks(kind: Type, value: NDArray[np.float32], seed: int) -> NDArray[np.uint8]:
    """Return blocks of random codes with the standard deviation of `value`."""
    size, nbytes = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (value.size // size, nbytes), dtype=np.uint8)
    _set_scales(kind, blocks, 1.0)
    _set_scales(kind, blocks, value.std() / gguf.dequantize(blocks, kind).std())
    return blocks.reshape(*value.shape[:-1], -1)


def _set_scales(kind: Type, blocks: NDArray[np.uint8], scale: float) -> None:
    for offset, ratio in _FACTORS[kind]:
        half = np.array([scale * ratio], np.float16).view(np.uint8)
        blocks[:, offset : offset + 2] = half
