"""The compilation of plain graphs by TVM's passes and a CUDA compiler."""

from __future__ import annotations

__all__ = ("cuda_graph_compiler",)

import tvm
import tvm_ffi
from tvm import relax

from aiomlc.compiler.backends.cuda.program import decode_program, encode_program
from aiomlc.compiler.backends.cuda.toolchain import CudaCompiler
from aiomlc.compiler.backends.tvm.graph_compiler import TvmGraphCompiler
from aiomlc.compiler.backends.tvm.merge import replace_merge
from aiomlc.devices import TargetAttributes


def cuda_graph_compiler(attributes: TargetAttributes, compiler: CudaCompiler) -> TvmGraphCompiler:
    """Return the compiler for NVIDIA's GPUs with these attributes of TVM's target.

    Its passes schedule each kernel by dlight's rules for GPUs.
    """
    target = tvm.target.Target({"kind": "cuda", **attributes}, host="llvm")
    _compile_kernels_with(compiler, str(attributes["arch"]))
    merge = tvm.transform.module_pass(lambda module, _: replace_merge(module), opt_level=0)
    passes = [merge, relax.get_default_pipeline(target)]
    return TvmGraphCompiler("cuda", target, tvm.transform.Sequential(passes))


def _compile_kernels_with(compiler: CudaCompiler, arch: str) -> None:
    """Let TVM store machine code in place of the source that it generates."""

    def compile_source(source: str, _: tvm.target.Target) -> str:
        return encode_program(compiler.compile(source, arch).cubin)

    tvm_ffi.register_global_func("tvm_callback_cuda_postproc", compile_source, override=True)
    # Where a driver is, TVM loads what it has generated at once.
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", decode_program, override=True)
