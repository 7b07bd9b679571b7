"""The optimizer of the training loop."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from training.muon import Muon  # noqa: E402 - needs torch

_RATE = 0.01
_SHAPES = ((8, 16), (8, 16), (20, 8), (8, 8))


def test_matrices_of_one_shape_are_updated_as_if_each_were_alone() -> None:
    torch.manual_seed(0)
    together = [torch.randn(shape) for shape in _SHAPES]
    gradients = [torch.randn(shape) for shape in _SHAPES]
    alone = [matrix.clone() for matrix in together]

    for matrix, gradient in zip(together, gradients, strict=True):
        matrix.grad = gradient.clone()
    Muon(together, momentum=0.9, weight_decay=0.1).step(_RATE)
    for matrix, gradient in zip(alone, gradients, strict=True):
        matrix.grad = gradient.clone()
        Muon([matrix], momentum=0.9, weight_decay=0.1).step(_RATE)

    for matrix, expected in zip(together, alone, strict=True):
        assert matrix.grad is None
        torch.testing.assert_close(matrix, expected)


@pytest.mark.parametrize("shape", _SHAPES)
def test_updates_are_nearly_orthogonal(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    before = torch.randn(shape)
    matrix = before.clone()
    matrix.grad = torch.randn(shape)
    Muon([matrix], momentum=0.9, weight_decay=0.0).step(_RATE)

    scale = _RATE * max(1.0, shape[0] / shape[1]) ** 0.5
    values = torch.linalg.svdvals((before - matrix) / scale)
    assert 0.5 < float(values.min()) <= float(values.max()) < 1.4
