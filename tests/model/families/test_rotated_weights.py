"""Logits of `w4a8` and `w8a8` are those of the weights that NumPy rounds to their formats."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.model.families.test_logits import OpenTiny, logits_of, reference
from tests.model.make_reference import PROMPT
from tests.model.tiny_models import DISTINCT, dequantized, tiny_weights, write_model

_GROUP, _LEVELS = 32, 15


def _hadamard() -> NDArray[np.float64]:
    matrix = np.ones((1, 1))
    while len(matrix) < _GROUP:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def _to_progressive(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the integers of the grid with the least squared error in each group."""
    low, high = scaled.min(-1, keepdims=True), scaled.max(-1, keepdims=True)
    widest = np.rint((high - low) / _LEVELS).clip(1, 17)
    best, least = np.zeros_like(scaled), np.full_like(low, np.inf)
    for step in (widest, (widest - 1).clip(1)):
        for shift in (0, -0.25, 0.25):
            offset = np.rint((low + high - step * _LEVELS) / 2 + shift * step)
            offset = offset.clip(-128, 127 - step * _LEVELS)
            integers = np.rint((scaled - offset) / step).clip(0, _LEVELS) * step + offset
            error = np.square(integers - scaled).sum(-1, keepdims=True)
            best = np.where(error < least, integers, best)
            least = np.minimum(error, least)
    return best


#: What the weights of an output, divided by their scale, are rounded to; and the error of normal
#: ones.
_FORMATS: dict[str, tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], float]] = {
    "w4a8": (_to_progressive, 0.06),
    "w8a8": (np.rint, 0.006),
}


def round_rotated(rows: NDArray[np.float32], quantization: str) -> NDArray[np.float32]:
    """Return a matrix that was rounded after a rotation, and rotated back."""
    count, columns = rows.shape
    padded = np.pad(rows.astype(np.float64), ((0, 0), (0, -columns % _GROUP)))
    groups = padded.reshape(count, -1, _GROUP) @ _hadamard() / _GROUP
    scale = np.abs(groups).max((1, 2), keepdims=True) / 127
    scaled = groups / np.where(scale > 0, scale, 1)
    rounded = _FORMATS[quantization][0](scaled) * scale @ _hadamard()
    return np.asarray(rounded.reshape(count, -1)[:, :columns], np.float32)


@pytest.mark.parametrize("quantization", _FORMATS)
def test_the_reference_is_near_the_weights(quantization: str) -> None:
    weights = np.random.default_rng(1).normal(size=(40, 100)).astype(np.float32)

    error = round_rotated(weights, quantization) - weights

    expected = _FORMATS[quantization][1]
    assert 0.5 < np.linalg.norm(error) / np.linalg.norm(weights) / expected < 1.7


@pytest.mark.parametrize(
    ("architecture", "quantization"),
    [*product(DISTINCT, ["w4a8"]), *product(DISTINCT[:2], ["w8a8"])],
)
def test_logits_are_those_of_the_rounded_weights(
    open_tiny: OpenTiny, tmp_path: Path, architecture: str, quantization: str
) -> None:
    weights = dequantized(
        tiny_weights(architecture), lambda rows: round_rotated(rows, quantization)
    )
    tokens, _ = reference(architecture, "q0f32")
    expected = logits_of(
        open_tiny(write_model(tmp_path / architecture, architecture, weights), "q0f32"),
        tokens,
        [len(PROMPT)],
    )

    actual = logits_of(open_tiny(architecture, quantization), tokens, [len(PROMPT)])

    # Inputs are rounded to 8 bits, and keys and values to bfloat16.
    errors = np.abs(actual - expected).max(1) / (expected.max() - expected.min())
    assert np.median(errors) < 0.02
    assert np.quantile(errors, 0.9) < 0.04
    assert errors.min() > 0
