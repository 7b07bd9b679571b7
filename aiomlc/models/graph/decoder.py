"""The decoder's graph, shared by all families: tokens in, logits out.

Rows are tokens: hidden states are float32 `[n, hidden]` for the tokens of all sequences of a batch.
The KV cache knows which rows belong to which sequence.
"""

from __future__ import annotations

__all__ = ("CreateCache", "Decoder", "DecoderLayers", "build_scale")

from collections.abc import Callable
from typing import Any

from tvm.relax.frontend import nn

from aiomlc.models.config.decoder import DecoderConfig, PerLayerEmbedding
from aiomlc.models.graph.blocks import build_block, build_norm
from aiomlc.models.graph.columns import ConcatColumns, KnownIds, SliceColumns
from aiomlc.models.graph.layers import (
    Add,
    Embedding,
    GatherRows,
    Linear,
    Norm,
    RMSNorm,
    Scale,
    SoftCap,
)
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.shards import GatherShards
from aiomlc.models.graph.step import Step
from aiomlc.models.graph.streams import AddPieceRows, StreamProjections, SumStreams

CreateCache = Callable[..., Any]


class Decoder(Module):
    """A causal language model. The public methods are the functions of the compiled library."""

    def __init__(
        self, config: DecoderConfig, kv_dtype: str, create_cache: CreateCache | None
    ) -> None:
        super().__init__()
        self.config = config
        self.create_cache = create_cache
        self.model: DecoderLayers = DecoderLayers(config, kv_dtype)
        self.embedding_scale: Scale | None = build_scale(config.embedding_scale)
        self.soft_cap: SoftCap | None = None
        if config.final_logit_softcapping:
            self.soft_cap = SoftCap(config.final_logit_softcapping)
        self.gather_rows: GatherRows = GatherRows()
        self.lm_head: Linear | None = None
        self.gather_shards: GatherShards | None = None
        shards = config.num_shards if config.has_divided_head else 1
        if shards > 1:
            self.gather_shards = GatherShards(shards)
        if not config.reuses_embedding:
            self.lm_head = Linear(
                config.hidden_size,
                config.vocab_size // shards,
                bias=config.head_bias,
                out_dtype="float32",
            )
        self.logit_scale: Scale | None = build_scale(config.logit_scale)

    def embed(self, ids: nn.Tensor) -> nn.Tensor:
        """Return the scaled embeddings `[n, hidden]` of token ids int32 `[n]`."""
        x = self.model.embed_tokens(ids)
        return x if self.embedding_scale is None else self.embedding_scale(x)

    def embed_layers(self, x: nn.Tensor, ids: nn.Tensor) -> nn.Tensor:
        """Return embeddings `[n, hidden]`, followed by those of the tokens for each layer.

        Only a library of a model with `DecoderConfig.per_layer_embedding` has this function.
        """
        return self.model.with_layer_embeddings(x, ids)

    def batch_prefill(
        self, x: nn.Tensor, logit_positions: nn.Tensor, kv: nn.Object
    ) -> tuple[nn.Tensor, nn.Object]:
        """Return the logits `[1, b, vocab]` of `b` of the `n` rows.

        Args:
            x: Embeddings `[1, n, size]`, of `DecoderConfig.embedded_size`.
            logit_positions: Rows whose logits are returned, int32 `[b]`.
            kv: The KV cache.
        """
        update, residual = self.model(x.reshape(x.shape[1], x.shape[2]), kv)
        # The last norm and the head are only computed for the requested rows.
        update = self.gather_rows(update, logit_positions)
        residual = self.gather_rows(residual, logit_positions)
        logits = self._logits(update, residual)
        return logits.reshape(1, logits.shape[0], self.config.vocab_size), kv

    def batch_decode(self, x: nn.Tensor, kv: nn.Object) -> tuple[nn.Tensor, nn.Object]:
        """Return the logits `[b, 1, vocab]` for embeddings `[b, 1, size]`, one per sequence."""
        update, residual = self.model(x.reshape(x.shape[0], x.shape[2]), kv)
        logits = self._logits(update, residual)
        return logits.reshape(x.shape[0], 1, self.config.vocab_size), kv

    def create_tir_paged_kv_cache(
        self,
        max_batch_size: Any,  # noqa: ANN401 - tvm is untyped.
        max_total_tokens: Any,  # noqa: ANN401
        prefill_chunk_size: Any,  # noqa: ANN401
        page_size: Any,  # noqa: ANN401
        sliding_window: Any,  # noqa: ANN401
    ) -> nn.Object:
        """Return an empty KV cache of the given sizes.

        `sliding_window` must be 0: the cache also keeps the positions outside of windows.
        """
        assert self.create_cache is not None, "the library has other functions for its cache"
        return self.create_cache(
            [max_batch_size, max_total_tokens, prefill_chunk_size, page_size, sliding_window]
        )

    def _logits(self, update: nn.Tensor, residual: nn.Tensor) -> nn.Tensor:
        if self.lm_head is not None and self.logit_scale is None:
            logits, _ = self.model.norm.add_linear(update, residual, self.lm_head)
            return self._capped(logits)

        x, _ = self.model.norm.add(update, residual)
        if self.logit_scale is not None:  # A row has fewer numbers here than after the head.
            x = self.logit_scale(x)
        head = self.model.embed_tokens.project if self.lm_head is None else self.lm_head
        return self._capped(head(x))

    def _capped(self, logits: nn.Tensor) -> nn.Tensor:
        capped = logits if self.soft_cap is None else self.soft_cap(logits)
        return capped if self.gather_shards is None else self.gather_shards(capped)


def build_scale(factor: float) -> Scale | None:
    """Return the layer that multiplies by a factor; None for 1."""
    return None if factor == 1.0 else Scale(factor)


class DecoderLayers(Module):
    """The embedding, the blocks and the last norm."""

    def __init__(self, config: DecoderConfig, kv_dtype: str) -> None:
        super().__init__()
        self.hidden_size: int = config.hidden_size
        self.embed_tokens: Embedding = Embedding(config.vocab_size, config.hidden_size)
        self.per_layer: PerLayerEmbedding | None = config.per_layer_embedding
        if self.per_layer is not None:
            self._add_layer_embeddings(config, self.per_layer)
        self.altup_projections: StreamProjections | None = None
        self.altup_unembed_projections: SumStreams | None = None
        if config.num_streams > 1:
            self.altup_projections = StreamProjections(config)
            self.altup_unembed_projections = SumStreams(config)
        self.layers: nn.ModuleList = nn.ModuleList(
            [build_block(config, layer, kv_dtype) for layer in range(config.num_hidden_layers)]
        )
        self.norm: Norm = build_norm(config)
        parts = range(1, config.num_piece_layers + 1)
        self.piece_rows: nn.ModuleList = nn.ModuleList([AddPieceRows(part) for part in parts])

    def _add_layer_embeddings(self, config: DecoderConfig, plan: PerLayerEmbedding) -> None:
        size = config.num_hidden_layers * plan.size
        self.embed_tokens_per_layer: Embedding = Embedding(plan.vocab_size, size)
        self.per_layer_model_projection: Linear = Linear(
            config.hidden_size, size, bias=False, out_dtype="float32"
        )
        self.per_layer_projection_norm: RMSNorm = RMSNorm(plan.size, config.norm_eps)
        self.known_ids: KnownIds = KnownIds(plan.vocab_size)
        self.own_scale: Scale = Scale(plan.size**0.5)
        self.projection_scale: Scale = Scale(config.hidden_size**-0.5)
        self.mean_scale: Scale = Scale(2.0**-0.5)
        self.sum: Add = Add()
        self.concat: ConcatColumns = ConcatColumns()
        self.slice: SliceColumns = SliceColumns()

    def with_layer_embeddings(self, x: nn.Tensor, ids: nn.Tensor) -> nn.Tensor:
        """Return the embeddings `x` `[n, hidden]`, followed by those for each layer."""
        assert self.per_layer is not None
        own = self.own_scale(self.embed_tokens_per_layer(self.known_ids(ids)))
        n, size = own.shape
        projected = self.projection_scale(self.per_layer_model_projection(x))
        rows = projected.reshape(n, int(size) // self.per_layer.size, self.per_layer.size)
        normed = self.per_layer_projection_norm(rows).reshape(n, size)
        return self.concat(x, self.mean_scale(self.sum(normed, own)), 0, int(size))

    def forward(self, embedded: nn.Tensor, kv: nn.Object) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the last layer's update, and the residual stream that it must be added to."""
        step = Step(kv, embedded)
        x = embedded
        if self.per_layer is not None:
            x = self.slice(embedded, 0, self.hidden_size)
        if self.altup_projections is not None:
            x = self.altup_projections(x)
        update: nn.Tensor | None = None
        for index, layer in enumerate(self.layers):
            update, x = layer(update, x, step)
            if index < len(self.piece_rows):
                update = self.piece_rows[index](update, kv)
        if self.altup_unembed_projections is not None:
            update, x = self.altup_unembed_projections(x)
            return update, x

        assert update is not None, "a layer without streams leaves an update"
        return update, x
