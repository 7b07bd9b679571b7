"""The compilation of plain graphs by TVM's passes and a CUDA compiler."""

from __future__ import annotations

__all__ = ("cuda_graph_compiler",)

from typing import Final

import tvm
import tvm_ffi

from aiomlc.compiler.backends.cuda.program import decode_program, encode_program
from aiomlc.compiler.backends.cuda.toolchain import CudaCompiler
from aiomlc.compiler.backends.tvm.graph_compiler import TvmGraphCompiler, gpu_graph_compiler
from aiomlc.devices import TargetAttributes

# Attention keeps its tile in registers. With four blocks per multiprocessor a thread has 128 of
# them; by its own choice `ptxas` takes 96 and spills.
_REGISTERS: Final = ("__launch_bounds__(128)", "__launch_bounds__(128, 4)")


def cuda_graph_compiler(attributes: TargetAttributes, compiler: CudaCompiler) -> TvmGraphCompiler:
    """Return the compiler for NVIDIA's GPUs with these attributes of TVM's target."""
    target = tvm.target.Target({"kind": "cuda", **attributes}, host="llvm")
    _compile_kernels_with(compiler, str(attributes["arch"]))
    return gpu_graph_compiler("cuda", target)


def _compile_kernels_with(compiler: CudaCompiler, arch: str) -> None:
    """Let TVM store machine code in place of the source that it generates."""

    def compile_source(source: str, _: tvm.target.Target) -> str:
        kernels = source.replace(*_REGISTERS)
        return encode_program(compiler.compile(kernels, arch).cubin)

    tvm_ffi.register_global_func("tvm_callback_cuda_postproc", compile_source, override=True)
    # Where a driver is, TVM loads what it has generated at once.
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", decode_program, override=True)
