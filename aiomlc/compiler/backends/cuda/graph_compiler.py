"""The compilation of plain graphs by TVM's passes and a CUDA compiler."""

from __future__ import annotations

__all__ = ("cuda_graph_compiler",)

import re
from typing import Final

import tvm
import tvm_ffi

from aiomlc.compiler.backends.cuda.program import decode_program, encode_program
from aiomlc.compiler.backends.cuda.toolchain import CudaCompiler
from aiomlc.compiler.backends.tvm.graph_compiler import TvmGraphCompiler, gpu_graph_compiler
from aiomlc.devices import TargetAttributes

# Attention, in blocks of 128 to 512 threads, keeps its tiles in registers. By its own choice
# `ptxas` gives a thread fewer of them, for more blocks on a multiprocessor, and spills. Here a
# thread has up to 128.
_LEAST_THREADS: Final = 128
_RESIDENT_THREADS: Final = 512
_LAUNCH_BOUNDS: Final = re.compile(r"__launch_bounds__\((\d+)\)")


def cuda_graph_compiler(attributes: TargetAttributes, compiler: CudaCompiler) -> TvmGraphCompiler:
    """Return the compiler for NVIDIA's GPUs with these attributes of TVM's target."""
    target = tvm.target.Target({"kind": "cuda", **attributes}, host="llvm")
    _compile_kernels_with(compiler, str(attributes["arch"]))
    return gpu_graph_compiler("cuda", target)


def _compile_kernels_with(compiler: CudaCompiler, arch: str) -> None:
    """Let TVM store machine code in place of the source that it generates."""

    def compile_source(source: str, _: tvm.target.Target) -> str:
        kernels = _LAUNCH_BOUNDS.sub(_with_registers, source)
        return encode_program(compiler.compile(kernels, arch).cubin)

    tvm_ffi.register_global_func("tvm_callback_cuda_postproc", compile_source, override=True)
    # Where a driver is, TVM loads what it has generated at once.
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", decode_program, override=True)


def _with_registers(bounds: re.Match[str]) -> str:
    threads = int(bounds[1])
    if not _LEAST_THREADS <= threads <= _RESIDENT_THREADS:
        return bounds[0]

    return f"__launch_bounds__({threads}, {_RESIDENT_THREADS // threads})"
