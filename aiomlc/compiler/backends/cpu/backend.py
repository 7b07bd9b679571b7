"""The facts of the native CPU kernels that the loader needs. Never imports tvm."""

from __future__ import annotations

__all__ = ("CpuBackend",)

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from aiomlc.compiler.backends.cpu.memory import token_bytes
from aiomlc.compiler.interface import TokenBytes
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import Quantization
from aiomlc.config import KVCacheType
from aiomlc.devices import DeviceName
from aiomlc.models import DecoderConfig, ModelConfig, Parameter
from aiomlc.models.parameters.packed_layout import LayoutFamily

if TYPE_CHECKING:
    from aiomlc.compiler.interface import GraphCompiler

_SCALE_BYTES: Final = 4  # A float32.


@final
class CpuBackend:
    """The native CPU kernels."""

    name: DeviceName = "cpu"
    layout_family: LayoutFamily = "tiles"
    is_batch_invariant: Final = True
    takes_pieces: Final = True
    imports_prefixes: Final = True

    def check(self, config: ModelConfig, quantization: Quantization, dtype: KVCacheType) -> None:
        """Accept every model that can be opened."""

    def kv_cache(self, quantization: Quantization, dtype: KVCacheType) -> KVCache:
        """Return the storage of keys and values; int8 has a float32 scale per head and position."""
        match dtype:
            case "float16" | "float32":
                return KVCache(dtype, dtype)
            case "auto":
                return KVCache(quantization.kv_dtype, quantization.kv_dtype)
            case "int8":
                return KVCache(quantization.kv_dtype, "int8", _SCALE_BYTES)

    def token_bytes(
        self,
        config: DecoderConfig,
        parameters: Sequence[Parameter],
        quantization: Quantization,
        cache: KVCache,
    ) -> TokenBytes:
        """Return the memory that a decoder needs per token, beside its KV cache."""
        return token_bytes(config, parameters, quantization, cache)

    def graph_compiler(self) -> GraphCompiler:
        """Return the part that imports tvm."""
        from aiomlc.compiler.backends.cpu.graph_compiler import CpuGraphCompiler

        return CpuGraphCompiler()
