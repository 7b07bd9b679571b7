"""The exchanges between shards, as collectives over shared memory."""

from __future__ import annotations

__all__ = ("SHARD_LAYERS",)

from collections.abc import Callable, Mapping
from typing import Any

from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.kernel_call import KernelCall, call_kernel
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.shards import AllReduce, GatherShards


class CpuGatherShards(Module):
    """The columns of all shards, in the first one."""

    def __init__(self, layer: GatherShards) -> None:
        super().__init__()
        self.count: int = layer.count

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        shape = (x.shape[0], self.count * int(x.shape[1]))
        return call_kernel("gather_shards", [x], shape, "float32")


#: Replacements of the layers of the graph.
SHARD_LAYERS: Mapping[type, Callable[[Any], nn.Module]] = {
    AllReduce: lambda _: KernelCall("all_reduce"),
    GatherShards: CpuGatherShards,
}
