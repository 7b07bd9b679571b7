"""The creation of TVM's paged KV cache with TVM's own kernels."""

from __future__ import annotations

__all__ = ("tvm_cache_factory",)

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import RopeMode, TIRPagedKVCache

from aiomlc.compiler.kv_cache import KVCache
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.graph.decoder import CreateCache


def tvm_cache_factory(
    config: DecoderConfig, cache: KVCache, target: tvm.target.Target
) -> CreateCache:
    """Return a function that emits the creation of TVM's paged KV cache for a target."""

    def create(sizes: Sequence[Any]) -> nn.Object:
        rope, shape = config.attention[0].rope, config.cache_shape
        assert rope is not None, "the back end refuses layers without RoPE"
        return TIRPagedKVCache(
            "mha",
            *sizes,
            layer_partition=relax.ShapeExpr([0, shape.num_layers]),
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            qk_head_dim=shape.head_dim,
            v_head_dim=shape.head_dim,
            mla_original_qk_head_dim=0,
            mla_original_v_head_dim=0,
            rope_mode=RopeMode.NORMAL,
            rope_scale=1 / rope.factor if rope.rope_type == "linear" else 1.0,
            rope_theta=rope.theta,
            rope_scaling=_llama3_scaling(rope),
            rope_ext_factors=relax.prim_value(0),
            rotary_dim=2 * len(rope.inverse_frequencies(shape.head_dim)),
            enable_disaggregation=False,
            dtype=cache.dtype,
            target=target,
        )

    return create


def _llama3_scaling(rope: RopeConfig) -> dict[str, float | str]:
    """Return TVM's settings of `llama3`, the only scaling that is not a factor on positions."""
    if rope.rope_type != "llama3":
        return {}

    return {
        "rope_type": "llama3",
        "factor": rope.factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": rope.original_context,
    }
