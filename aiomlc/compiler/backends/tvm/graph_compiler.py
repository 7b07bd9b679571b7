"""The compilation of plain graphs by TVM's own passes to code of the CPU or of a GPU."""

from __future__ import annotations

__all__ = (
    "TvmGraphCompiler",
    "cpu_graph_compiler",
    "gpu_graph_compiler",
    "opencl_graph_compiler",
)

import tempfile
from pathlib import Path
from typing import final

import tvm
from tvm import relax
from tvm.support import cc

from aiomlc.compiler.backends.tvm.cache import tvm_cache_factory
from aiomlc.compiler.backends.tvm.gemv import fused_product
from aiomlc.compiler.backends.tvm.grid import grid_of
from aiomlc.compiler.backends.tvm.layers import Product, dequantized_product, lower_to_rows
from aiomlc.compiler.backends.tvm.merge import replace_merge
from aiomlc.compiler.backends.tvm.page_tables import lower_to_page_tables, page_table_cache
from aiomlc.compiler.backends.tvm.schedules import schedule_experts
from aiomlc.compiler.backends.tvm.support import needs_page_tables
from aiomlc.compiler.cache_graph import CacheGraph
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import Quantization
from aiomlc.devices import TargetAttributes
from aiomlc.errors import CompileError
from aiomlc.models import DecoderConfig
from aiomlc.models.graph.any_encoder import AnyEncoder
from aiomlc.models.graph.decoder import Decoder


@final
class TvmGraphCompiler:
    """Keeps the plain layers, for which TVM generates code; the host's with LLVM."""

    def __init__(
        self,
        device: str,
        target: tvm.target.Target,
        passes: tvm.transform.Pass,
        product: Product = dequantized_product,
    ) -> None:
        """Compile for a target, with a product of vectors and matrices of 4 bits.

        Raises:
            CompileError: If the machine has no C compiler, whose linker makes the shared object.
        """
        if cc.get_cc() is None:
            raise CompileError(
                f"device {device!r} needs a C compiler: install gcc or clang, or use device 'cpu'"
            )

        self._target = target
        self._passes: tvm.transform.Pass = passes
        self._product = product

    def cache_graph(self, config: DecoderConfig, cache: KVCache) -> CacheGraph:
        """Return TVM's paged KV cache, or page tables for layers that it does not support."""
        if needs_page_tables(config, cache):
            return page_table_cache(config, cache, grid_of(self._target))

        return CacheGraph(tvm_cache_factory(config, cache, self._target))

    def lower_decoder(
        self, decoder: Decoder, quantization: Quantization, cache: KVCache
    ) -> Decoder:
        """Return the decoder, whose quantized matrices are dequantized in the graph."""
        if quantization.matrix_format == "q4":
            decoder = lower_to_rows(decoder, self._product)
        if needs_page_tables(decoder.config, cache):
            decoder = lower_to_page_tables(decoder, cache, grid_of(self._target))
        return decoder

    def lower_encoder(self, encoder: AnyEncoder, quantization: Quantization) -> AnyEncoder:
        """Encoders are refused by the back ends' `check`."""
        raise NotImplementedError

    def build(self, module: tvm.IRModule) -> relax.VMExecutable:
        """Return the machine code of the host, and the kernels of a GPU."""
        # TVM breaks attention with the positions of Llama 3 when it shares common subexpressions,
        # which compilers share, too.
        with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):
            return relax.build(module, self._target, relax_pipeline=self._passes)

    def export(self, executable: relax.VMExecutable) -> bytes:
        """Return a shared object with the bytecode, the machine code and a GPU's kernels."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "library.so"
            executable.export_library(str(path))
            return path.read_bytes()


def cpu_graph_compiler() -> TvmGraphCompiler:
    """Return the compiler for a generic processor of this machine's architecture."""
    passes = [relax.get_pipeline("zero"), relax.get_pipeline("default_build")]
    return TvmGraphCompiler("cpu:tvm", tvm.target.Target("llvm"), tvm.transform.Sequential(passes))


def opencl_graph_compiler(attributes: TargetAttributes) -> TvmGraphCompiler:
    """Return the compiler for OpenCL devices with these attributes of TVM's target."""
    target = tvm.target.Target({"kind": "opencl", **attributes}, host="llvm")
    return gpu_graph_compiler("opencl", target)


def gpu_graph_compiler(device: str, target: tvm.target.Target) -> TvmGraphCompiler:
    """Return the compiler for a GPU, which schedules each kernel by dlight's rules."""
    passes = [
        tvm.transform.module_pass(lambda module, _: replace_merge(module), opt_level=0),
        tvm.transform.module_pass(lambda module, _: schedule_experts(module), opt_level=0),
        relax.get_default_pipeline(target),
    ]
    return TvmGraphCompiler(device, target, tvm.transform.Sequential(passes), fused_product)
