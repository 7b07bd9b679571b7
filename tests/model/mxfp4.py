"""MXFP4 as gpt-oss checkpoints store it, from its definition: OCP Microscaling Formats 1.0."""

from __future__ import annotations

__all__ = ("Mxfp4", "dequantize_mxfp4", "quantize_mxfp4")

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GROUP = 32
_MAGNITUDES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_VALUES = np.concatenate([_MAGNITUDES, -_MAGNITUDES])
_BIAS = 127


class Mxfp4(NamedTuple):
    """Codes, of which the lower bits of a byte are the first, and exponents of groups."""

    blocks: NDArray[np.uint8]  #: `[..., groups, 16]`.
    scales: NDArray[np.uint8]  #: `[..., groups]`.


def quantize_mxfp4(weights: NDArray[np.float32]) -> Mxfp4:
    """Quantize the last axis in groups; the largest magnitude of a group is at most 6 steps."""
    groups = weights.reshape(*weights.shape[:-1], -1, GROUP).astype(np.float64)
    largest = np.abs(groups).max(axis=-1, keepdims=True)
    exponents = np.ceil(np.log2(np.maximum(largest, 1e-30) / _MAGNITUDES[-1]))
    scaled = groups / 2.0**exponents
    nearest = np.abs(np.abs(scaled)[..., None] - _MAGNITUDES).argmin(axis=-1)
    codes = (nearest + 8 * (scaled < 0)).astype(np.uint8)
    blocks = codes[..., ::2] | codes[..., 1::2] << np.uint8(4)
    return Mxfp4(blocks, (exponents[..., 0] + _BIAS).astype(np.uint8))


def dequantize_mxfp4(stored: Mxfp4) -> NDArray[np.float32]:
    """Return the numbers `[..., groups * 32]`, which are exact in float32."""
    codes = np.stack([stored.blocks & 15, stored.blocks >> 4], axis=-1)
    values = _VALUES[codes].reshape(*codes.shape[:-2], GROUP)
    exact = values * 2.0 ** (stored.scales[..., None].astype(np.float64) - _BIAS)
    return exact.reshape(*exact.shape[:-2], -1).astype(np.float32)
