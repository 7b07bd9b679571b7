"""The compilation of graphs whose operators are all calls to native CPU kernels."""

from __future__ import annotations

__all__ = ("CpuGraphCompiler",)

import os
from collections.abc import Callable
from pathlib import Path
from typing import final

import tvm
from tvm import relax
from tvm.relax import transform

from aiomlc.compiler.backends.cpu.cache import cpu_cache_factory
from aiomlc.compiler.backends.cpu.lowering import lower_to_cpu
from aiomlc.compiler.cache_graph import CacheGraph
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.passes.buffer_reuse import reuse_buffers
from aiomlc.compiler.passes.dead_tuples import drop_dead_tuples
from aiomlc.compiler.quantization import Quantization
from aiomlc.models import DecoderConfig
from aiomlc.models.graph.any_encoder import AnyEncoder
from aiomlc.models.graph.decoder import Decoder


@final
class CpuGraphCompiler:
    """Lowers graphs to kernel calls; TVM generates no code for them."""

    def cache_graph(self, config: DecoderConfig, cache: KVCache) -> CacheGraph:
        """Return TVM's paged KV cache with our kernels."""
        return CacheGraph(cpu_cache_factory(config, cache))

    def lower_decoder(
        self, decoder: Decoder, quantization: Quantization, cache: KVCache
    ) -> Decoder:
        """Return the decoder with kernel calls as layers and packed bytes as matrices."""
        return lower_to_cpu(decoder, quantization, cache)

    def lower_encoder(self, encoder: AnyEncoder, quantization: Quantization) -> AnyEncoder:
        """Return the encoder with kernel calls as layers and packed bytes as matrices."""
        return lower_to_cpu(encoder, quantization)

    def build(self, module: tvm.IRModule) -> relax.VMExecutable:
        """Return the bytecode of a graph whose operators are all kernel calls.

        No code is generated, so the machine needs neither a compiler nor a linker.
        """
        passes = tvm.transform.Sequential(
            [
                transform.ToNonDataflow(),
                transform.RemovePurityChecking(),
                transform.CallTIRRewrite(),
                _module_pass(reuse_buffers),
                # A binding of a variable to another costs a copy.
                transform.CanonicalizeBindings(),
                _module_pass(drop_dead_tuples),
                transform.LowerRuntimeBuiltin(),
                transform.VMShapeLower(),
                transform.AttachGlobalSymbol(),
                _module_pass(_check_only_bytecode),
            ]
        )
        return relax.build(module, tvm.target.Target("llvm"), relax_pipeline=passes)

    def export(self, executable: relax.VMExecutable) -> bytes:
        """Return the bytes of a library.

        TVM would write a truncated file to a full disk silently.
        """
        descriptor = os.memfd_create("aiomlc-library")
        try:
            path = Path(f"/proc/self/fd/{descriptor}")
            executable.mod.write_to_file(str(path), "vm")
            return path.read_bytes()
        finally:
            os.close(descriptor)


def _module_pass(function: Callable[..., tvm.IRModule]) -> tvm.transform.Pass:
    return tvm.transform.module_pass(function, opt_level=0)


def _check_only_bytecode(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    others = [str(n) for n, f in module.functions.items() if not isinstance(f, relax.Function)]
    if others:
        raise AssertionError(
            f"these functions are not bytecode and would need code generation: {', '.join(others)}"
        )

    return module
