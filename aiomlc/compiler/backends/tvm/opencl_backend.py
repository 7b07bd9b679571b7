"""The facts of TVM's own kernels for OpenCL that the loader needs. Never imports tvm."""

from __future__ import annotations

__all__ = ("OpenCLBackend",)

from typing import TYPE_CHECKING, final

from aiomlc.compiler.backends.tvm.support import TvmKernels
from aiomlc.devices import DeviceName, TargetAttributes

if TYPE_CHECKING:
    from aiomlc.compiler.interface import GraphCompiler


@final
class OpenCLBackend(TvmKernels):
    """Kernels that TVM schedules for GPUs, and its own paged KV cache."""

    name: DeviceName = "opencl"

    def graph_compiler(self, target: TargetAttributes) -> GraphCompiler:
        """Return the part that imports tvm for a device of these attributes."""
        from aiomlc.compiler.backends.tvm.graph_compiler import opencl_graph_compiler

        return opencl_graph_compiler(target)
