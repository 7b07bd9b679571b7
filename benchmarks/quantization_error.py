"""The error of quantized weights, with the scales of MLC LLM and with those of `--search`.

`python -m benchmarks.quantization_error` prints the root mean square error relative to that of the
weights: for random weights, and for the matrices of the bundled model at 3 bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from aiomlc.config import BUNDLED_MODEL
from aiomlc.tools.mlc_format import MLC_FORMATS, MLCFormat
from aiomlc.tools.quantizer import quantize_rows
from aiomlc.weights.formats.mlc import read_mlc

Array = NDArray[np.float32]

_SHAPE = (1024, 1920)  # A multiple of both group sizes.


def dequantized(words: NDArray[np.uint32], scales: Array, mlc_format: MLCFormat) -> Array:
    """Return the weights of words and scales."""
    shifts = np.arange(32 // mlc_format.bits, dtype=np.uint32) * mlc_format.bits
    values = (words[..., None] >> shifts) & (2**mlc_format.bits - 1)
    levels = values.reshape(len(words), -1).astype(np.float32) - (2 ** (mlc_format.bits - 1) - 1)
    weights: Array = levels * scales.repeat(mlc_format.group_size, axis=1)
    return weights


def relative_error(weights: Array, name: str, *, search: bool) -> float:
    """Return the root mean square error, relative to that of the weights."""
    mlc_format = MLC_FORMATS[name]
    importance = np.ones(weights.shape[1], np.float32) if search else None
    words, scales = quantize_rows(weights, mlc_format, importance)
    floats = scales.view(np.float16).astype(np.float32)
    restored = dequantized(words.view(np.uint32), floats, mlc_format)[:, : weights.shape[1]]
    error = (restored - weights).astype(np.float64)
    return float(np.sqrt(np.square(error).mean() / np.square(weights).mean()))


def bundled_matrices() -> Iterator[Array]:
    """Yield the matrices of the bundled model, which has 4 bits."""
    tensors = read_mlc(BUNDLED_MODEL).tensors
    for name, words in tensors.items():
        if name.endswith(".q_weight"):
            scales = tensors[f"{name.removesuffix('.q_weight')}.q_scale"]
            yield dequantized(
                np.memmap(words.path, np.uint32, "r", words.offset, words.shape),
                np.memmap(scales.path, np.float16, "r", scales.offset, scales.shape).astype(
                    np.float32
                ),
                MLC_FORMATS["q4f16_1"],
            )


def main() -> None:
    """Print a table."""
    random = np.random.default_rng(0)
    cases: dict[str, tuple[tuple[str, ...], list[Array]]] = {
        "normal": (("q4f16_1", "q3f16_1"), [random.normal(0, 0.02, _SHAPE).astype(np.float32)]),
        "laplace": (("q4f16_1", "q3f16_1"), [random.laplace(0, 0.02, _SHAPE).astype(np.float32)]),
        "pebble": (("q3f16_1",), [*bundled_matrices()]),
    }
    print(f"{'weights':10}{'format':10}{'default':>10}{'search':>10}")
    for case, (names, matrices) in cases.items():
        for name in names:
            default, found = (
                np.mean([relative_error(matrix, name, search=search) for matrix in matrices])
                for search in (False, True)
            )
            print(f"{case:10}{name:10}{default:>10.2%}{found:>10.2%}")


if __name__ == "__main__":
    main()
