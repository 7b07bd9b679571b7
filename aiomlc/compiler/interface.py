"""The interface of a back end: what the compiler and the loader ask of a device's kernels.

A `Backend` has the facts that a process without tvm needs: sizes, formats and promises. Its
`GraphCompiler`, which only the compiler's process loads, imports tvm.
"""

from __future__ import annotations

__all__ = ("Backend", "GraphCompiler", "TokenBytes")

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import Quantization
from aiomlc.config import KVCacheType
from aiomlc.devices import DeviceName, TargetAttributes
from aiomlc.models import AnyConfig, DecoderConfig, Parameter
from aiomlc.models.parameters.packed_layout import LayoutFamily

if TYPE_CHECKING:
    import tvm
    from tvm import relax

    from aiomlc.compiler.cache_graph import CacheGraph
    from aiomlc.models.graph.any_encoder import AnyEncoder
    from aiomlc.models.graph.decoder import Decoder


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """Bytes of memory per token, beside the KV cache."""

    chunk: int  #: Workspace of the KV cache, per token of a prefill chunk.
    step: int  #: Estimated peak of the activations, per token of a step.


class Backend(Protocol):
    """A way to run the graphs of models on a kind of device. Never imports tvm."""

    @property
    def name(self) -> DeviceName:
        """The name of its device."""
        ...

    @property
    def layout_family(self) -> LayoutFamily:
        """The layout of the packed matrices."""
        ...

    @property
    def imports_prefixes(self) -> bool:
        """Whether keys and values of another engine can be added to its KV cache."""
        ...

    def draft_problem(self, config: AnyConfig) -> str | None:
        """Return why drafts of a model's tokens are not verified; None if they are."""
        ...

    @property
    def supports_shards(self) -> bool:
        """Whether several processes can compute a model together."""
        ...

    def check(self, config: AnyConfig, quantization: Quantization, dtype: KVCacheType) -> None:
        """Require that the back end supports a model with these formats.

        Raises:
            BadRequestError: If it does not; the message says why.
        """
        ...

    def kv_cache(
        self, config: DecoderConfig, quantization: Quantization, dtype: KVCacheType
    ) -> KVCache:
        """Return the storage of keys and values; "auto" is the quantization's default."""
        ...

    def token_bytes(
        self,
        config: DecoderConfig,
        parameters: Sequence[Parameter],
        quantization: Quantization,
        cache: KVCache,
    ) -> TokenBytes:
        """Return the memory that a decoder needs per token, beside its KV cache."""
        ...

    def toolchain(self) -> str:
        """Return name and version of the compiler beside TVM that its code depends on, if any.

        Raises:
            CompileError: If it is missing.
        """
        ...

    def graph_compiler(self, target: TargetAttributes) -> GraphCompiler:
        """Return the part that imports tvm; `target` has the attributes of the device."""
        ...


class GraphCompiler(Protocol):
    """Lowers plain graphs to what a back end runs, and builds libraries of them."""

    def cache_graph(self, config: DecoderConfig, cache: KVCache) -> CacheGraph:
        """Return the parts of a library that depend on its KV cache."""
        ...

    def lower_decoder(
        self, decoder: Decoder, quantization: Quantization, cache: KVCache
    ) -> Decoder:
        """Return the decoder with the layers and the packed parameters of the back end."""
        ...

    def lower_encoder(self, encoder: AnyEncoder, quantization: Quantization) -> AnyEncoder:
        """Return the encoder with the layers and the packed parameters of the back end."""
        ...

    def build(self, module: tvm.IRModule) -> relax.VMExecutable:
        """Return the program of a lowered module."""
        ...

    def export(self, executable: relax.VMExecutable) -> bytes:
        """Return the bytes of a library."""
        ...
