"""The blocks of a decoder: attention and a feed-forward layer with their norms.

A block returns its last update and the residual stream separately. The following norm, in the next
block or after the last one, adds them.
"""

from __future__ import annotations

__all__ = (
    "ParallelBlock",
    "PostNormBlock",
    "PreNormBlock",
    "SandwichNormBlock",
    "build_block",
    "build_norm",
)

from collections.abc import Callable, Mapping

from tvm.relax.frontend import nn

from aiomlc.models.config.decoder import DecoderConfig, NormPlacement
from aiomlc.models.graph.attention_spec import attention_spec
from aiomlc.models.graph.feed_forward import FeedForward, build_feed_forward
from aiomlc.models.graph.layers import Add, CacheAttention, LayerNorm, Linear, Norm, QKNorm, RMSNorm
from aiomlc.models.graph.module import Module


def build_norm(config: DecoderConfig) -> Norm:
    """Return a norm of hidden states, of the decoder's kind."""
    size, eps, kind = config.hidden_size, config.norm_eps, config.traits.norm_kind
    if kind == "rms":
        return RMSNorm(size, eps)

    return LayerNorm(size, eps, bias=kind == "layer")


class PreNormBlock(Module):
    """Attention and a feed-forward layer, each with a norm of its input."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.input_layernorm: Norm = build_norm(config)
        self.self_attn: _Attention = _Attention(config, layer, kv_dtype)
        self.post_attention_layernorm: Norm = build_norm(config)
        self.mlp: FeedForward = build_feed_forward(config, layer)

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        # Residual sum, norm and the following matrix are one call, so that one kernel can do all.
        if update is None:
            qkv = self.self_attn.qkv(self.input_layernorm(residual))
        else:
            qkv, residual = self.input_layernorm.add_linear(update, residual, self.self_attn.qkv)
        x = self.self_attn(qkv, kv)
        update, residual = self.mlp(x, residual, self.post_attention_layernorm)
        return update, residual


class SandwichNormBlock(Module):
    """Attention and a feed-forward layer, each with a norm of its input and one of its output."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.input_layernorm: Norm = build_norm(config)
        self.self_attn: _Attention = _Attention(config, layer, kv_dtype)
        self.post_attention_layernorm: Norm = build_norm(config)
        self.pre_feedforward_layernorm: Norm = build_norm(config)
        self.mlp: FeedForward = build_feed_forward(config, layer)
        self.post_feedforward_layernorm: Norm = build_norm(config)

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        if update is None:
            qkv = self.self_attn.qkv(self.input_layernorm(residual))
        else:
            qkv, residual = self.input_layernorm.add_linear(update, residual, self.self_attn.qkv)
        attended = self.post_attention_layernorm(self.self_attn(qkv, kv))
        update, residual = self.mlp(attended, residual, self.pre_feedforward_layernorm)
        return self.post_feedforward_layernorm(update), residual


class PostNormBlock(Module):
    """Attention and a feed-forward layer, each with a norm of its output."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.sum: Add = Add()
        self.self_attn: _Attention = _Attention(config, layer, kv_dtype)
        self.post_attention_layernorm: Norm = build_norm(config)
        self.mlp: FeedForward = build_feed_forward(config, layer)
        self.post_feedforward_layernorm: Norm = build_norm(config)

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        if update is not None:
            residual = self.sum(update, residual)
        attended = self.self_attn(self.self_attn.qkv(residual), kv)
        residual = self.sum(self.post_attention_layernorm(attended), residual)
        return self.post_feedforward_layernorm(self.mlp.without_norm(residual)), residual


class ParallelBlock(Module):
    """Attention and a feed-forward layer on the same input, with a norm each or one for both."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.sum: Add = Add()
        self.input_layernorm: Norm = build_norm(config)
        self.self_attn: _Attention = _Attention(config, layer, kv_dtype)
        self.post_attention_layernorm: Norm | None = (
            build_norm(config) if config.traits.norm_placement == "parallel" else None
        )
        self.mlp: FeedForward = build_feed_forward(config, layer)

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        if update is None:
            x = self.input_layernorm(residual)
        else:
            x, residual = self.input_layernorm.add(update, residual)
        attended = self.self_attn(self.self_attn.qkv(x), kv)
        if self.post_attention_layernorm is not None:
            x = self.post_attention_layernorm(residual)
        return self.sum(attended, self.mlp.without_norm(x)), residual


_BLOCKS: Mapping[NormPlacement, Callable[[DecoderConfig, int, str], Module]] = {
    "pre": PreNormBlock,
    "post": PostNormBlock,
    "sandwich": SandwichNormBlock,
    "parallel": ParallelBlock,
    "parallel_shared": ParallelBlock,
}


def build_block(config: DecoderConfig, layer: int, kv_dtype: str) -> Module:
    """Return the block of layer `layer`."""
    return _BLOCKS[config.traits.norm_placement](config, layer, kv_dtype)


class _Attention(Module):
    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.num_heads: int = config.num_attention_heads
        self.head_dim: int = config.head_dim
        self.num_fused_heads: int = config.num_attention_heads + 2 * config.num_key_value_heads
        self.qkv_name: str = config.traits.qkv_name
        self._add_qkv(config, kv_dtype)
        self.o_proj: Linear = Linear(
            self.num_heads * config.head_dim,
            config.hidden_size,
            bias=config.traits.output_bias,
            out_dtype="float32",
        )
        self.attend: CacheAttention = CacheAttention(
            layer,
            self.num_heads,
            config.head_dim,
            dtype=kv_dtype,
            spec=attention_spec(config, layer),
        )

    def _add_qkv(self, config: DecoderConfig, kv_dtype: str) -> None:
        traits = config.traits
        qkv_dtype = "float32" if traits.qk_norm else kv_dtype
        fused = self.num_fused_heads * config.head_dim
        qkv = Linear(config.hidden_size, fused, bias=traits.qkv_bias, out_dtype=qkv_dtype)
        setattr(self, traits.qkv_name, qkv)
        self.qk_norm: QKNorm | None = None
        if not traits.qk_norm:
            return

        kv_heads, eps = config.num_key_value_heads, config.norm_eps
        q_heads_per_norm = self.num_heads if traits.qk_norm_full_width else 1
        k_heads_per_norm = kv_heads if traits.qk_norm_full_width else 1
        self.q_norm: RMSNorm = RMSNorm(config.head_dim * q_heads_per_norm, eps)
        self.k_norm: RMSNorm = RMSNorm(config.head_dim * k_heads_per_norm, eps)
        self.qk_norm = QKNorm(self.num_heads, kv_heads, eps=eps, out_dtype=kv_dtype)

    @property
    def qkv(self) -> Linear:
        """The fused QKV matrix, whose attribute has MLC's name for it."""
        qkv: Linear = getattr(self, self.qkv_name)
        return qkv

    def forward(self, qkv: nn.Tensor, kv: nn.Object) -> nn.Tensor:
        """Return the attention output for the fused queries, keys and values of `self.qkv`."""
        n = qkv.shape[0]
        qkv = qkv.reshape(n, self.num_fused_heads, self.head_dim)
        if self.qk_norm is not None:
            qkv = self.qk_norm(qkv, self.q_norm.weight, self.k_norm.weight)
        return self.o_proj(self.attend(qkv, kv).reshape(n, self.num_heads * self.head_dim))
