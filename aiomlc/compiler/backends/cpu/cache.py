"""The creation of TVM's paged KV cache with the native CPU kernels."""

from __future__ import annotations

__all__ = ("cpu_cache_factory",)

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.kernel_call import KERNEL_PREFIX
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.graph.decoder import CreateCache
from aiomlc.models.graph.rope_table import rope_table

_ROPE_NORMAL = 1  # TVM's RopeMode: rotate keys before they enter the cache.
_ATTENTION_MHA = 0  # TVM's AttnKind.
_LAYER_SLIDING_WINDOW = 1024  # Required by TVM, but only used for kinds of layers not used here.


def cpu_cache_factory(config: DecoderConfig, cache: KVCache) -> CreateCache:
    """Return a function that emits the creation of TVM's paged KV cache with the CPU kernels."""

    def create(sizes: Sequence[Any]) -> nn.Object:
        call = relax.call_pure_packed(
            "vm.builtin.paged_attention_kv_cache_create",
            *_shape_arguments(config, cache, sizes),
            *_rope_arguments(config),
            relax.const(np.zeros((), cache.storage_dtype)),
            *_cache_functions(has_equal_heads=config.has_equal_heads),
            ty_args=relax.AnyType(),
        )
        return nn.Object(_expr=call, _name="kv_cache")

    return create


def _shape_arguments(config: DecoderConfig, cache: KVCache, sizes: Sequence[Any]) -> list[Any]:
    shape = config.cache_shape
    row_size = cache.row_size(shape.head_dim)
    return [
        relax.ShapeExpr([*sizes, _LAYER_SLIDING_WINDOW]),
        relax.ShapeExpr([0, shape.num_layers]),  # A single pipeline stage.
        relax.prim_value(shape.num_heads),
        relax.prim_value(shape.num_kv_heads),
        relax.prim_value(row_size),
        relax.prim_value(row_size),
        relax.ShapeExpr([_ATTENTION_MHA] * shape.num_layers),
        relax.prim_value(False),  # No disaggregation.
    ]


def _rope_arguments(config: DecoderConfig) -> list[Any]:
    # The cache passes its "extension factors" to the rotary kernel unchanged. Here they are the
    # values of the RoPE table: inverse frequencies, already scaled, then the factor on cosines and
    # sines. A layer that uses only a slice of the table passes the slice itself.
    values = np.array(rope_table(config).values, np.float32)
    scale, theta = relax.prim_value(1.0), relax.prim_value(config.rope_theta)
    return [relax.prim_value(_ROPE_NORMAL), scale, theta, relax.const(values)]


def _cache_functions(*, has_equal_heads: bool) -> list[Any]:
    """Return the cache's functions in the order of TVM's constructor; unsupported ones raise.

    These include copies of slots if layers have unequal heads: a slot of one is none of another.
    """

    def attention(name: str) -> Any:  # noqa: ANN401 - tvm is untyped.
        return relax.Tuple([tvm.ir.StringImm("tirx"), relax.ExternFunc(KERNEL_PREFIX + name)])

    def function(name: str) -> Any:  # noqa: ANN401 - tvm is untyped.
        return relax.ExternFunc(KERNEL_PREFIX + name)

    unsupported = "attention_unsupported"
    copies = ("kv_copy_page", "kv_debug_get", "kv_compact_copy")
    if not has_equal_heads:
        copies = ("kv_copy_whole_page", unsupported, unsupported)
    return [
        function("kv_append"),
        function(unsupported),  # Append to a latent (MLA) cache.
        attention("attention_ragged"),
        attention("attention_prefill"),
        attention("attention_decode"),
        attention(unsupported),  # Prefill with a sliding window.
        attention(unsupported),  # Decode with a sliding window.
        attention(unsupported),  # Tree attention, paged.
        attention(unsupported),  # Tree attention, ragged.
        relax.Tuple([]),  # MLA.
        relax.Tuple([function("attention_merge")]),
        function("kv_split_rotary"),
        *map(function, copies),
    ]
