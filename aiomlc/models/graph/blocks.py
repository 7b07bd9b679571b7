"""The blocks of a decoder: attention and a feed-forward layer with their norms.

A block returns its last update and the residual stream separately. The following norm, in the next
block or after the last one, adds them.
"""

from __future__ import annotations

__all__ = ("Block", "build_block", "build_norm")

from collections.abc import Mapping

from tvm.relax.frontend import nn

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.layers import AttentionConfig, LayerConfig, NormPlacement
from aiomlc.models.graph.feed_forward import FeedForward, build_feed_forward
from aiomlc.models.graph.layers import Add, CacheAttention, LayerNorm, Linear, Norm, QKNorm, RMSNorm
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.rope_table import rope_table


def build_norm(config: DecoderConfig) -> Norm:
    """Return a norm of hidden states, of the decoder's kind."""
    size, eps, kind = config.hidden_size, config.norm_eps, config.norm_kind
    if kind == "rms":
        return RMSNorm(size, eps)

    return LayerNorm(size, eps, bias=kind == "layer")


class Block(Module):
    """The modules of a layer; a subclass for each placement of the norms connects them."""

    input_layernorm: Norm
    post_attention_layernorm: Norm
    pre_feedforward_layernorm: Norm
    post_feedforward_layernorm: Norm

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.plan: LayerConfig = config.layers[layer]
        self.sum: Add = Add()
        for part in self.plan.parts:  # In their order, which is also that of the parameters.
            match part:
                case "self_attn":
                    self.self_attn: _Attention = _Attention(config, layer, kv_dtype)
                case "mlp":
                    self.mlp: FeedForward = build_feed_forward(
                        self.plan.feed_forward, config.hidden_size
                    )
                case norm:
                    setattr(self, norm, build_norm(config))

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the layer's update of the residual stream, and the stream before it.

        Args:
            update: The update of the layer before, which the stream does not have yet.
            residual: The residual stream `[n, hidden]`.
            kv: The KV cache.
        """
        raise NotImplementedError

    def _normalized_qkv(
        self, update: nn.Tensor | None, residual: nn.Tensor
    ) -> tuple[nn.Tensor, nn.Tensor]:
        # Residual sum, norm and the following matrix are one call, so that one kernel can do all.
        if update is not None:
            return self.input_layernorm.add_linear(update, residual, self.self_attn.qkv)

        return self.self_attn.qkv(self.input_layernorm(residual)), residual


class PreNormBlock(Block):
    """Attention and a feed-forward layer, each with a norm of its input."""

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        qkv, residual = self._normalized_qkv(update, residual)
        attended = self.self_attn(qkv, kv)
        update, residual = self.mlp(attended, residual, self.post_attention_layernorm)
        return update, residual


class SandwichNormBlock(Block):
    """Attention and a feed-forward layer, each with a norm of its input and one of its output."""

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        qkv, residual = self._normalized_qkv(update, residual)
        attended = self.post_attention_layernorm(self.self_attn(qkv, kv))
        update, residual = self.mlp(attended, residual, self.pre_feedforward_layernorm)
        return self.post_feedforward_layernorm(update), residual


class PostNormBlock(Block):
    """Attention and a feed-forward layer, each with a norm of its output."""

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        if update is not None:
            residual = self.sum(update, residual)
        attended = self.self_attn(self.self_attn.qkv(residual), kv)
        residual = self.sum(self.post_attention_layernorm(attended), residual)
        return self.post_feedforward_layernorm(self.mlp.without_norm(residual)), residual


class ParallelBlock(Block):
    """Attention and a feed-forward layer on the same input, with a norm each or one for both."""

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Tensor]:
        if update is None:
            x = self.input_layernorm(residual)
        else:
            x, residual = self.input_layernorm.add(update, residual)
        attended = self.self_attn(self.self_attn.qkv(x), kv)
        if "post_attention_layernorm" in self.plan.parts:
            x = self.post_attention_layernorm(residual)
        return self.sum(attended, self.mlp.without_norm(x)), residual


_BLOCKS: Mapping[NormPlacement, type[Block]] = {
    "pre": PreNormBlock,
    "post": PostNormBlock,
    "sandwich": SandwichNormBlock,
    "parallel": ParallelBlock,
    "parallel_shared": ParallelBlock,
}


def build_block(config: DecoderConfig, layer: int, kv_dtype: str) -> Block:
    """Return the block of layer `layer`."""
    return _BLOCKS[config.layers[layer].norm_placement](config, layer, kv_dtype)


class _Attention(Module):
    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        plan = config.layers[layer].mixer
        self.plan: AttentionConfig = plan
        self.num_fused_heads: int = plan.num_heads + 2 * plan.num_kv_heads
        self.qkv_name: str = config.checkpoint.qkv_name
        fused = self.num_fused_heads * plan.head_dim
        has_norm = plan.qk_norm != "none"
        qkv_dtype = "float32" if has_norm else kv_dtype
        qkv = Linear(config.hidden_size, fused, bias=plan.qkv_bias, out_dtype=qkv_dtype)
        setattr(self, self.qkv_name, qkv)
        self.qk_norm: QKNorm | None = None
        if has_norm:
            self._add_qk_norm(plan, config.norm_eps, kv_dtype)
        self.o_proj: Linear = Linear(
            plan.num_heads * plan.head_dim,
            config.hidden_size,
            bias=plan.output_bias,
            out_dtype="float32",
        )
        rope_slice = rope_table(config).layer_slices[layer]
        self.attend: CacheAttention = CacheAttention(layer, plan, rope_slice, dtype=kv_dtype)

    def _add_qk_norm(self, plan: AttentionConfig, eps: float, kv_dtype: str) -> None:
        is_full_width = plan.qk_norm == "full_width"
        q_heads, k_heads = (plan.num_heads, plan.num_kv_heads) if is_full_width else (1, 1)
        self.q_norm: RMSNorm = RMSNorm(plan.head_dim * q_heads, eps)
        self.k_norm: RMSNorm = RMSNorm(plan.head_dim * k_heads, eps)
        self.qk_norm = QKNorm(plan.num_heads, plan.num_kv_heads, eps=eps, out_dtype=kv_dtype)

    @property
    def qkv(self) -> Linear:
        """The fused QKV matrix, whose attribute has MLC's name for it."""
        qkv: Linear = getattr(self, self.qkv_name)
        return qkv

    def forward(self, qkv: nn.Tensor, kv: nn.Object) -> nn.Tensor:
        """Return the attention output for the fused queries, keys and values of `self.qkv`."""
        n, heads, head_dim = qkv.shape[0], self.plan.num_heads, self.plan.head_dim
        qkv = qkv.reshape(n, self.num_fused_heads, head_dim)
        if self.qk_norm is not None:
            qkv = self.qk_norm(qkv, self.q_norm.weight, self.k_norm.weight)
        return self.o_proj(self.attend(qkv, kv).reshape(n, heads * head_dim))
