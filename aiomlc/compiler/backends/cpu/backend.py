"""The facts of the native CPU kernels that the loader needs. Never imports tvm."""

from __future__ import annotations

__all__ = ("CpuBackend",)

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from aiomlc.compiler.backends.cpu.memory import token_bytes
from aiomlc.compiler.interface import TokenBytes
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import Quantization
from aiomlc.config import PAGE_SIZE, KVCacheType
from aiomlc.devices import DeviceName, TargetAttributes
from aiomlc.errors import BadRequestError
from aiomlc.models import AnyConfig, DecoderConfig, Parameter
from aiomlc.models.parameters.packed_layout import LayoutFamily

if TYPE_CHECKING:
    from aiomlc.compiler.interface import GraphCompiler

_SCALE_BYTES: Final = 4  # A float32.


def _has_pairs(config: DecoderConfig) -> bool:
    """Return whether the kernels can multiply pairs of all heads' elements."""
    return all(layer.head_dim % PAGE_SIZE == 0 for layer in config.attention)


@final
class CpuBackend:
    """The native CPU kernels."""

    name: DeviceName = "cpu"
    layout_family: LayoutFamily = "tiles"
    imports_prefixes: Final = True
    supports_shards: Final = True

    def draft_problem(self, config: AnyConfig) -> None:
        """Drafts of every model are verified."""

    def check(self, config: AnyConfig, quantization: Quantization, dtype: KVCacheType) -> None:
        """Accept every model that can be opened, but not all of them with a bfloat16 KV cache.

        Raises:
            BadRequestError: If the cache is bfloat16, and heads have no multiple of 16 elements.
        """
        if dtype == "bfloat16" and isinstance(config, DecoderConfig) and not _has_pairs(config):
            raise BadRequestError(
                f"kv_cache_dtype='bfloat16' needs heads of a multiple of {PAGE_SIZE} elements, "
                f"and this model's have {config.cache_shape.head_dim}: use 'float16' or 'auto'",
                param="kv_cache_dtype",
            )

    def kv_cache(
        self, config: DecoderConfig, quantization: Quantization, dtype: KVCacheType
    ) -> KVCache:
        """Return the storage of keys and values; int8 has a float32 scale per head and position.

        Heads whose elements cannot be multiplied in pairs are float16 instead of bfloat16.
        """
        compute = quantization.compute_dtype
        match dtype:
            case "float16" | "float32":
                return KVCache(dtype, dtype)
            case "bfloat16":
                return KVCache(compute, dtype)
            case "auto" if quantization.kv_dtype == "bfloat16" and not _has_pairs(config):
                return KVCache(compute, compute)
            case "auto":
                return KVCache(compute, quantization.kv_dtype)
            case "int8":
                return KVCache(compute, "int8", _SCALE_BYTES)

    def token_bytes(
        self,
        config: DecoderConfig,
        parameters: Sequence[Parameter],
        quantization: Quantization,
        cache: KVCache,
    ) -> TokenBytes:
        """Return the memory that a decoder needs per token, beside its KV cache."""
        return token_bytes(config, parameters, quantization, cache)

    def toolchain(self) -> str:
        """Return nothing: there is only bytecode."""
        return ""

    def graph_compiler(self, target: TargetAttributes) -> GraphCompiler:
        """Return the part that imports tvm."""
        from aiomlc.compiler.backends.cpu.graph_compiler import CpuGraphCompiler

        return CpuGraphCompiler()
