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
#: Of which the elements of heads must be a multiple: vectors, or blocks that are rotated.
_MULTIPLES: Final = {"bfloat16": PAGE_SIZE, "int4": 32}


def _supports_heads(config: DecoderConfig, dtype: str) -> bool:
    """Return whether the kernels can store the keys and values of all heads as `dtype`."""
    multiple = _MULTIPLES.get(dtype, 1)
    return all(layer.head_dim % multiple == 0 for layer in config.attention)


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
        """Accept every model that can be opened, but not all of them with every KV cache.

        Raises:
            BadRequestError: If the heads have a number of elements that the cache cannot store.
        """
        if isinstance(config, DecoderConfig) and not _supports_heads(config, dtype):
            sizes = sorted({layer.head_dim for layer in config.attention})
            raise BadRequestError(
                f"kv_cache_dtype={dtype!r} needs heads of a multiple of {_MULTIPLES[dtype]} "
                f"elements, and this model's have {' and '.join(map(str, sizes))}: use "
                f"{'int8' if dtype == 'int4' else 'float16'!r} or 'auto'",
                param="kv_cache_dtype",
            )

    def kv_cache(
        self, config: DecoderConfig, quantization: Quantization, dtype: KVCacheType
    ) -> KVCache:
        """Return the storage of keys and values; integers have a scale per head and position.

        Heads whose elements cannot be multiplied in pairs are float16 instead of bfloat16.
        """
        compute = quantization.compute_dtype
        match dtype:
            case "float16" | "float32":
                return KVCache(dtype, dtype)
            case "bfloat16":
                return KVCache(compute, dtype)
            case "auto" if not _supports_heads(config, quantization.kv_dtype):
                return KVCache(compute, compute)
            case "auto":
                return KVCache(compute, quantization.kv_dtype)
            case "int8" | "int4":
                return KVCache(compute, dtype, _SCALE_BYTES)

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
