"""The Muon optimizer in float32.

`torch.optim.Muon` orthogonalizes in bfloat16, which is several times slower than float32 on a
processor without bfloat16 instructions.
"""

from __future__ import annotations

__all__ = ("Muon",)

from dataclasses import dataclass, field

import torch
from torch import Tensor

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # https://kellerjordan.github.io/posts/muon/
_ITERATIONS = 5


def _orthogonalize(gradients: Tensor) -> Tensor:
    """Return matrices with the singular vectors of `gradients` and singular values near 1.

    Both are [matrices, rows, columns].
    """
    a, b, c = _COEFFICIENTS
    tall = gradients.shape[1] > gradients.shape[2]
    x = gradients.mT if tall else gradients
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


@dataclass(slots=True)
class Muon:
    """Momentum whose update of every matrix is orthogonalized."""

    matrices: list[Tensor]
    momentum: float
    weight_decay: float
    averages: list[Tensor] = field(init=False)  #: Of the gradients, one for each matrix.

    def __post_init__(self) -> None:
        self.averages = [torch.zeros_like(matrix) for matrix in self.matrices]

    def step(self, rate: float) -> None:
        """Update every matrix by its gradient, and clear the gradient."""
        with torch.no_grad():
            for shape in sorted({tuple(matrix.shape) for matrix in self.matrices}):
                self._step_shape(shape, rate)

    def _step_shape(self, shape: tuple[int, ...], rate: float) -> None:
        """Update the matrices of one shape together, which takes fewer operations."""
        matrices, gradients, averages = [], [], []
        for matrix, average in zip(self.matrices, self.averages, strict=True):
            if matrix.shape == shape:
                assert matrix.grad is not None
                average.lerp_(matrix.grad, 1 - self.momentum)
                matrices.append(matrix)
                gradients.append(matrix.grad)
                averages.append(average)
        mixed = torch.stack(gradients).lerp(torch.stack(averages), self.momentum)
        rows, columns = shape
        updates = _orthogonalize(mixed).mul_(-rate * max(1.0, rows / columns) ** 0.5)
        for matrix, update in zip(matrices, updates, strict=True):
            matrix.mul_(1 - rate * self.weight_decay).add_(update)
            matrix.grad = None
