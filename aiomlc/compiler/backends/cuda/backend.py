"""The facts of TVM's kernels for NVIDIA's GPUs that the loader needs. Never imports tvm."""

from __future__ import annotations

__all__ = ("CudaBackend",)

from typing import TYPE_CHECKING, final

from aiomlc.compiler.backends.cuda.toolchain import find_cuda_compiler
from aiomlc.compiler.backends.tvm.support import TvmKernels
from aiomlc.devices import DeviceName, TargetAttributes

if TYPE_CHECKING:
    from aiomlc.compiler.interface import GraphCompiler


@final
class CudaBackend(TvmKernels):
    """Kernels that TVM schedules for NVIDIA's GPUs, and its own paged KV cache."""

    name: DeviceName = "cuda"

    def toolchain(self) -> str:
        """Return the name and version of the CUDA compiler.

        Raises:
            CompileError: If there is none.
        """
        return find_cuda_compiler().version

    def graph_compiler(self, target: TargetAttributes) -> GraphCompiler:
        """Return the part that imports tvm, for an architecture."""
        from aiomlc.compiler.backends.cuda.graph_compiler import cuda_graph_compiler

        return cuda_graph_compiler(target, find_cuda_compiler())
