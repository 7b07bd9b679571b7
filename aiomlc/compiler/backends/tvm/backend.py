"""The facts of TVM's own kernels for the CPU that the loader needs. Never imports tvm."""

from __future__ import annotations

__all__ = ("TvmBackend",)

from typing import TYPE_CHECKING, final

from aiomlc.compiler.backends.tvm.support import TvmKernels
from aiomlc.devices import DeviceName, TargetAttributes
from aiomlc.models import AnyConfig

if TYPE_CHECKING:
    from aiomlc.compiler.interface import GraphCompiler


@final
class TvmBackend(TvmKernels):
    """Code that TVM generates for plain graphs, and its own paged KV cache."""

    name: DeviceName = "cpu:tvm"

    def draft_problem(self, config: AnyConfig) -> str:
        """Return why drafts are not verified: decodes and prefills have different kernels."""
        return "the logits of a token depend on the others in its pass, so drafts would change them"

    def graph_compiler(self, target: TargetAttributes) -> GraphCompiler:
        """Return the part that imports tvm."""
        from aiomlc.compiler.backends.tvm.graph_compiler import cpu_graph_compiler

        return cpu_graph_compiler()
