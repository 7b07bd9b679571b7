"""The compilation of plain graphs by TVM's own passes to machine code of the CPU."""

from __future__ import annotations

__all__ = ("TvmGraphCompiler",)

import tempfile
from pathlib import Path
from typing import final

import tvm
from tvm import relax
from tvm.support import cc

from aiomlc.compiler.backends.tvm.cache import tvm_cache_factory
from aiomlc.compiler.backends.tvm.layers import lower_to_rows
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import Quantization
from aiomlc.errors import CompileError
from aiomlc.models import DecoderConfig
from aiomlc.models.graph.decoder import CreateCache, Decoder
from aiomlc.models.graph.vision import AnyEncoder


@final
class TvmGraphCompiler:
    """Keeps the plain layers, for which TVM generates code with LLVM.

    Raises:
        CompileError: If the machine has no C compiler, whose linker makes the shared object.
    """

    def __init__(self) -> None:
        if cc.get_cc() is None:
            raise CompileError(
                "device 'cpu:tvm' needs a C compiler: install gcc or clang, or use device 'cpu'"
            )

    @property
    def target(self) -> tvm.target.Target:
        """A generic processor of this machine's architecture."""
        return tvm.target.Target("llvm")

    def create_cache(self, config: DecoderConfig, cache: KVCache) -> CreateCache:
        """Return a function that emits the creation of TVM's paged KV cache."""
        return tvm_cache_factory(config, cache, self.target)

    def lower_decoder(
        self, decoder: Decoder, quantization: Quantization, cache: KVCache
    ) -> Decoder:
        """Return the decoder, whose quantized matrices are dequantized in the graph."""
        return lower_to_rows(decoder) if quantization.matrix_format == "q4" else decoder

    def lower_encoder(self, encoder: AnyEncoder, quantization: Quantization) -> AnyEncoder:
        """Encoders are refused by `TvmBackend.check`."""
        raise NotImplementedError

    def pipeline(self) -> tvm.transform.Pass:
        """Return TVM's passes."""
        return tvm.transform.Sequential(
            [relax.get_pipeline("zero"), relax.get_pipeline("default_build")]
        )

    def export(self, executable: relax.VMExecutable) -> bytes:
        """Return a shared object with the bytecode and the machine code."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "library.so"
            executable.export_library(str(path))
            return path.read_bytes()
