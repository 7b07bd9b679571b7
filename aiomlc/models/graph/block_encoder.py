"""The graph of an encoder that has a decoder's blocks: attention reads no KV cache.

Rows are tokens. The inputs are concatenated without padding.
"""

from __future__ import annotations

__all__ = ("BlockEncoder",)

from tvm.relax.frontend import nn

from aiomlc.models.config.encoder import BlockEncoderConfig
from aiomlc.models.config.layers import AttentionConfig
from aiomlc.models.graph.blocks import Block, build_norm
from aiomlc.models.graph.classifier import ClassifierHead
from aiomlc.models.graph.decoder import DecoderLayers, build_scale
from aiomlc.models.graph.layers import Add, Embedding, Linear, Norm, Scale
from aiomlc.models.graph.mixers import Attention
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.packed import PackedAttention, PackedTokens, PickRows


class BlockEncoder(Module):
    """An encoder of blocks. `encode` is the function of the compiled library."""

    def __init__(self, config: BlockEncoderConfig) -> None:
        super().__init__()
        blocks = config.blocks
        self.model: DecoderLayers = DecoderLayers(blocks, "float32")
        for plan, layer in zip(blocks.layers, self.model.layers, strict=True):
            assert isinstance(plan.mixer, AttentionConfig), "recurrent layers are refused before"
            assert isinstance(layer, Block)
            assert isinstance(layer.mixer, Attention)
            layer.mixer.attend = PackedAttention(plan.mixer, is_causal=config.is_causal)
        self.embedding_scale: Scale | None = build_scale(blocks.embedding_scale)
        self.position_embed: Embedding | None = None
        if config.position_table:
            self.position_embed = Embedding(blocks.context_window_size, blocks.hidden_size)
        self.sum: Add = Add()
        self.embedding_norm: Norm | None = None
        if config.has_embedding_norm:
            self.embedding_norm = build_norm(blocks)
        self.lm_head: Linear | None = None
        self.last: PickRows | None = None
        if config.has_token_logits:
            self.last = PickRows("last")
            if not blocks.tie_word_embeddings:
                self.lm_head = _build_head(blocks.hidden_size, blocks.vocab_size)
        self.classifier: ClassifierHead | None = None
        if config.classifier is not None:
            self.classifier = ClassifierHead(config.classifier, config.hidden_size, blocks.norm_eps)

    def encode(
        self, ids: nn.Tensor, positions: nn.Tensor, types: nn.Tensor, lengths: nn.Tensor
    ) -> nn.Tensor:
        """Return hidden states, float32 `[n, hidden]`; of a classifier, logits `[b, labels]`; with
        logits of tokens, those `[b, vocab]`.

        Args:
            ids: Token ids, int32 `[n]`.
            positions: Positions for RoPE or rows of the table of positions, int32 `[n]`.
            types: Token types, int32 `[n]`, which such an encoder does not have.
            lengths: Tokens of each input, int32 `[b]`.
        """
        x = self.model.embed_tokens(ids)
        if self.embedding_scale is not None:
            x = self.embedding_scale(x)
        if self.position_embed is not None:
            x = self.sum(x, self.position_embed(positions))
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        update, residual = self.model(x, PackedTokens(positions, lengths))
        x, _ = self.model.norm.add(update, residual)
        if self.last is not None:
            head = self.model.embed_tokens.project if self.lm_head is None else self.lm_head
            return head(self.last(x, lengths))

        return x if self.classifier is None else self.classifier(x, lengths)


def _build_head(inputs: int, outputs: int) -> Linear:
    return Linear(inputs, outputs, bias=False, out_dtype="float32")
