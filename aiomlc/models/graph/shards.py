"""The exchanges between the shards of a model."""

from __future__ import annotations

__all__ = ("AllReduce", "GatherShards")

from tvm.relax.frontend import nn

from aiomlc.models.graph.module import Module

_UNSUPPORTED = "several shards are not supported on this target"


class AllReduce(Module):
    """The sum of the tensors `[n, size]` of all shards, which all of them get."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError(_UNSUPPORTED)


class GatherShards(Module):
    """The columns of all shards side by side, in the first shard; the others get no numbers."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError(_UNSUPPORTED)
