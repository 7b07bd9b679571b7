"""The models that code of TVM supports, and the memory that it takes. Never imports tvm."""

from __future__ import annotations

__all__ = ("TvmKernels", "needs_page_tables")

from collections.abc import Iterator, Sequence
from typing import Final

from aiomlc.compiler.interface import TokenBytes
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import Quantization
from aiomlc.config import KVCacheType
from aiomlc.devices import DeviceName
from aiomlc.errors import BadRequestError
from aiomlc.models import AnyConfig, DecoderConfig, ExpertsConfig, Parameter
from aiomlc.models.config.layers import DenseAndExpertsConfig, FeedForwardConfig
from aiomlc.models.parameters.packed_layout import LayoutFamily

_QUANTIZATIONS: Final = ("q0f32", "q4f16_1")
_SCALE_BYTES: Final = 4  # A float32.
_ROPE_TYPES: Final = ("default", "linear", "llama3")  # TVM's longrope cannot be built.


class TvmKernels:
    """The part of a `Backend` that its kernels by TVM decide."""

    name: DeviceName
    layout_family: LayoutFamily = "rows"
    supports_shards: Final = False
    imports_prefixes: Final = False  # TVM's cache stores only rows that it has rotated itself.

    def check(self, config: AnyConfig, quantization: Quantization, dtype: KVCacheType) -> None:
        """Require that TVM's passes and its KV cache support a model.

        Raises:
            BadRequestError: If they do not; the message names the device and says why.
        """
        name = quantization.name
        if name not in _QUANTIZATIONS or quantization.layouts:
            allowed = " or ".join(_QUANTIZATIONS)
            raise self._unsupported(f"quantization must be {allowed}, got {name}", "quantization")

        if dtype == "int4":
            raise self._unsupported(
                "kv_cache_dtype must be auto, float16, bfloat16, float32 or int8, got int4",
                "kv_cache_dtype",
            )

        for reason in _reasons(config):
            raise self._unsupported(f"{reason} are not supported", "model")

    def draft_problem(self, config: AnyConfig) -> str | None:
        """Return why drafts are not verified; they are, up to the rounding of a batch."""
        is_recurrent = isinstance(config, DecoderConfig) and config.recurrent
        return "the states of recurrent layers are not rewound to a draft" if is_recurrent else None

    def kv_cache(
        self, config: DecoderConfig, quantization: Quantization, dtype: KVCacheType
    ) -> KVCache:
        """Return the storage of keys and values."""
        match dtype:
            case "float16" | "float32":
                return KVCache(dtype, dtype)
            case "bfloat16":
                return KVCache("float32", dtype)
            case "int8" | "int4":  # int4 is refused by `check`.
                return KVCache("float32", dtype, _SCALE_BYTES)
            case "auto":
                return KVCache(quantization.compute_dtype, quantization.compute_dtype)

    def token_bytes(
        self,
        config: DecoderConfig,
        parameters: Sequence[Parameter],
        quantization: Quantization,
        cache: KVCache,
    ) -> TokenBytes:
        """Return the memory that a decoder needs per token, beside its KV cache."""
        shape = config.cache_shape
        queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        inner = max(_inner_size(layer.feed_forward) for layer in config.layers)
        return TokenBytes(
            # Queries, keys, values and outputs, two of them twice, and log-sum-exps.
            chunk=(3 * shape.num_heads + 2 * shape.num_kv_heads)
            * cache.compute_bytes
            * shape.head_dim
            + 8 * shape.num_heads,
            step=4 * (4 * config.hidden_size + 2 * queries + 2 * keys + 4 * inner),
        )

    def toolchain(self) -> str:
        """Return nothing: TVM makes the code."""
        return ""

    def _unsupported(self, problem: str, param: str) -> BadRequestError:
        return BadRequestError(f"device {self.name!r}: {problem}; use device 'cpu'", param=param)


def _inner_size(feed_forward: FeedForwardConfig) -> int:
    """Return the inputs of the last matrix, of all experts of a token."""
    match feed_forward:
        case ExpertsConfig():
            chosen = feed_forward.per_token * feed_forward.intermediate_size
            return chosen + feed_forward.shared_size
        case DenseAndExpertsConfig(dense=dense, experts=experts):
            return _inner_size(dense) + _inner_size(experts)
        case _:
            return feed_forward.intermediate_size


def _reasons(config: AnyConfig) -> Iterator[str]:
    """Yield what a model has and TVM's graph does not support."""
    if not isinstance(config, DecoderConfig):
        yield "speech models" if config.kind == "speech" else "encoders"


def needs_page_tables(config: DecoderConfig, cache: KVCache) -> bool:
    """Whether TVM's paged KV cache does not support a decoder's layers, or their storage."""
    attention = config.attention
    rope = attention[0].rope
    return (
        cache.is_converted
        or bool(config.recurrent or config.rope_axes)
        or config.needs_whole_pieces
        or config.num_piece_layers > 0
        or rope is None
        or rope.rope_type not in _ROPE_TYPES
        or rope.pads_to_head_dim
        or not config.has_equal_heads
        or any(
            layer.window or layer.soft_cap or layer.sink_scores or layer.rope != rope
            for layer in attention
        )
    )
