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


def _orthogonalize(gradient: Tensor) -> Tensor:
    """Return a matrix with the singular vectors of `gradient` and singular values near 1."""
    a, b, c = _COEFFICIENTS
    tall = gradient.shape[0] > gradient.shape[1]
    x = gradient.T if tall else gradient
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


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
            for matrix, average in zip(self.matrices, self.averages, strict=True):
                assert matrix.grad is not None
                average.lerp_(matrix.grad, 1 - self.momentum)
                update = _orthogonalize(matrix.grad.lerp(average, self.momentum))
                matrix.mul_(1 - rate * self.weight_decay)
                rows, columns = matrix.shape
                matrix.add_(update, alpha=-rate * max(1.0, rows / columns) ** 0.5)
                matrix.grad = None
