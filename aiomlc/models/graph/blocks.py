"""What a decoder is a stack of.

A block hands on its last update and the residual stream it is to be added to: the sum belongs to
the norm that follows, in the next block or behind the last.
"""

from __future__ import annotations

__all__ = ("Block", "ParallelBlock", "PostNormBlock", "SandwichNormBlock", "block_of", "norm_of")

from collections.abc import Callable, Mapping

from tvm.relax.frontend import nn

from aiomlc.models.config.decoder import DecoderConfig, NormPlace
from aiomlc.models.graph.attention_spec import attention_spec
from aiomlc.models.graph.feed_forward import FeedForward, feed_forward_of
from aiomlc.models.graph.layers import Add, CacheAttention, LayerNorm, Linear, Norm, QKNorm, RMSNorm
from aiomlc.models.graph.module import Module


def norm_of(config: DecoderConfig) -> Norm:
    """A norm of hidden states, of the decoder's kind."""
    size, eps = config.hidden_size, config.rms_norm_eps
    if config.norm_kind == "rms":
        return RMSNorm(size, eps)

    return LayerNorm(size, eps, bias=config.norm_kind == "layer")


class Block(Module):
    """Attention and a feed-forward layer, each behind its norm and added to the residual stream."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.input_layernorm: Norm = norm_of(config)
        self.self_attn: _Attention = _Attention(config, layer, kv_dtype)
        self.post_attention_layernorm: Norm = norm_of(config)
        self.mlp: FeedForward = feed_forward_of(config, layer)

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        # The sum with the residual belongs to the norm after it, and both to the matrix that
        # follows, where one kernel does all.
        if update is None:
            qkv = self.self_attn.qkv(self.input_layernorm(residual))
        else:
            qkv, residual = self.input_layernorm.add_linear(update, residual, self.self_attn.qkv)
        x = self.self_attn(qkv, kv)
        update, residual = self.mlp(x, residual, self.post_attention_layernorm)
        return update, residual


class SandwichNormBlock(Module):
    """Attention and a feed-forward layer, each with a norm before and another behind it."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.input_layernorm: Norm = norm_of(config)
        self.self_attn: _Attention = _Attention(config, layer, kv_dtype)
        self.post_attention_layernorm: Norm = norm_of(config)
        self.pre_feedforward_layernorm: Norm = norm_of(config)
        self.mlp: FeedForward = feed_forward_of(config, layer)
        self.post_feedforward_layernorm: Norm = norm_of(config)

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
    """Attention and a gated layer, each with a norm of what it gives to the residual stream."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.sum: Add = Add()
        self.self_attn: _Attention = _Attention(config, layer, kv_dtype)
        self.post_attention_layernorm: Norm = norm_of(config)
        self.mlp: FeedForward = feed_forward_of(config, layer)
        self.post_feedforward_layernorm: Norm = norm_of(config)

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        if update is not None:
            residual = self.sum(update, residual)
        attended = self.self_attn(self.self_attn.qkv(residual), kv)
        residual = self.sum(self.post_attention_layernorm(attended), residual)
        return self.post_feedforward_layernorm(self.mlp.unnormed(residual)), residual


class ParallelBlock(Module):
    """Attention and a feed-forward layer side by side, behind a norm each or one for both."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.sum: Add = Add()
        self.input_layernorm: Norm = norm_of(config)
        self.self_attn: _Attention = _Attention(config, layer, kv_dtype)
        self.post_attention_layernorm: Norm | None = (
            norm_of(config) if config.norms == "parallel" else None
        )
        self.mlp: FeedForward = feed_forward_of(config, layer)

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
        return self.sum(attended, self.mlp.unnormed(x)), residual


_BLOCKS: Mapping[NormPlace, Callable[[DecoderConfig, int, str], Module]] = {
    "before": Block,
    "behind": PostNormBlock,
    "around": SandwichNormBlock,
    "parallel": ParallelBlock,
    "shared": ParallelBlock,
}


def block_of(config: DecoderConfig, layer: int, kv_dtype: str) -> Module:
    """The block of one layer."""
    return _BLOCKS[config.norms](config, layer, kv_dtype)


class _Attention(Module):
    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.num_heads: int = config.num_attention_heads
        self.head_dim: int = config.head_dim
        self.num_fused_heads: int = config.num_attention_heads + 2 * config.num_key_value_heads
        self.qkv_name: str = config.qkv_name
        qkv_dtype = "float32" if config.qk_norm else kv_dtype
        fused = self.num_fused_heads * config.head_dim
        qkv = Linear(config.hidden_size, fused, bias=config.qkv_bias, out_dtype=qkv_dtype)
        setattr(self, config.qkv_name, qkv)
        self.qk_norm: QKNorm | None = None
        if config.qk_norm:
            eps = config.rms_norm_eps
            joined = config.qk_norm_full_width
            self.q_norm: RMSNorm = RMSNorm(config.head_dim * (self.num_heads if joined else 1), eps)
            kv_heads = config.num_key_value_heads
            self.k_norm: RMSNorm = RMSNorm(config.head_dim * (kv_heads if joined else 1), eps)
            self.qk_norm = QKNorm(
                config.num_attention_heads,
                config.num_key_value_heads,
                eps=eps,
                out_dtype=kv_dtype,
            )
        self.o_proj: Linear = Linear(
            self.num_heads * config.head_dim,
            config.hidden_size,
            bias=config.output_bias,
            out_dtype="float32",
        )
        self.attend: CacheAttention = CacheAttention(
            layer,
            self.num_heads,
            config.head_dim,
            dtype=kv_dtype,
            how=attention_spec(config, layer),
        )

    @property
    def qkv(self) -> Linear:
        """The matrix of queries, keys and values, by whatever name."""
        qkv: Linear = getattr(self, self.qkv_name)
        return qkv

    def forward(self, qkv: nn.Tensor, kv: nn.Object) -> nn.Tensor:
        """What `self.qkv` gave, attended to."""
        n = qkv.shape[0]
        qkv = qkv.reshape(n, self.num_fused_heads, self.head_dim)
        if self.qk_norm is not None:
            qkv = self.qk_norm(qkv, self.q_norm.weight, self.k_norm.weight)
        return self.o_proj(self.attend(qkv, kv).reshape(n, self.num_heads * self.head_dim))
