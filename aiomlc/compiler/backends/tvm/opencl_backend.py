"""The facts of TVM's own kernels for OpenCL that the loader needs. Never imports tvm."""

from __future__ import annotations

__all__ = ("OpenCLBackend",)

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from aiomlc.compiler.backends.tvm.support import TvmKernels
from aiomlc.devices import DeviceName

if TYPE_CHECKING:
    from aiomlc.compiler.interface import GraphCompiler


@final
class OpenCLBackend(TvmKernels):
    """Kernels that TVM schedules for GPUs, and its own paged KV cache."""

    name: DeviceName = "opencl"
    supports_drafts: Final = True  # As on every GPU: up to the rounding of a batch.

    def graph_compiler(self, target: Mapping[str, int]) -> GraphCompiler:
        """Return the part that imports tvm for a device of these attributes."""
        from aiomlc.compiler.backends.tvm.graph_compiler import opencl_graph_compiler

        return opencl_graph_compiler(target)
