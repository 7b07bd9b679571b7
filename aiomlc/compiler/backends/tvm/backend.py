"""The facts of TVM's own kernels for the CPU that the loader needs. Never imports tvm."""

from __future__ import annotations

__all__ = ("TvmBackend",)

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, final

from aiomlc.compiler.backends.tvm.support import kv_cache, require_support, token_bytes
from aiomlc.compiler.interface import TokenBytes
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import Quantization
from aiomlc.config import KVCacheType
from aiomlc.devices import DeviceName
from aiomlc.models import AnyConfig, DecoderConfig, Parameter
from aiomlc.models.parameters.packed_layout import LayoutFamily

if TYPE_CHECKING:
    from aiomlc.compiler.interface import GraphCompiler


@final
class TvmBackend:
    """Code that TVM generates for plain graphs, and its own paged KV cache."""

    name: DeviceName = "cpu:tvm"
    layout_family: LayoutFamily = "rows"
    is_batch_invariant: Final = False  # Decodes and prefills have different kernels.
    takes_pieces: Final = False
    imports_prefixes: Final = False  # TVM's cache stores only rows that it has rotated itself.
    supports_drafts: Final = False

    def check(self, config: AnyConfig, quantization: Quantization, dtype: KVCacheType) -> None:
        """Require that TVM's passes and its KV cache support a model.

        Raises:
            BadRequestError: If they do not; the message says why.
        """
        require_support(self.name, config, quantization, dtype)

    def kv_cache(
        self, config: DecoderConfig, quantization: Quantization, dtype: KVCacheType
    ) -> KVCache:
        """Return the storage of keys and values; `check` refuses what is not a float."""
        return kv_cache(quantization, dtype)

    def token_bytes(
        self,
        config: DecoderConfig,
        parameters: Sequence[Parameter],
        quantization: Quantization,
        cache: KVCache,
    ) -> TokenBytes:
        """Return the memory that a decoder needs per token, beside its KV cache."""
        return token_bytes(config, cache)

    def graph_compiler(self, target: Mapping[str, int]) -> GraphCompiler:
        """Return the part that imports tvm."""
        from aiomlc.compiler.backends.tvm.graph_compiler import cpu_graph_compiler

        return cpu_graph_compiler()
