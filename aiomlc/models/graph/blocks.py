"""The blocks of a decoder: a mixer and a feed-forward layer with their norms.

A block returns its last update and the residual stream separately. The following norm, in the next
block or after the last one, adds them.
"""

from __future__ import annotations

__all__ = ("Block", "build_block", "build_norm")

from collections.abc import Mapping

from tvm.relax.frontend import nn

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.layers import LayerConfig, NormPlacement
from aiomlc.models.graph.columns import ConcatColumns, ScaleBy
from aiomlc.models.graph.feed_forward import FeedForward, build_feed_forward
from aiomlc.models.graph.layers import (
    Add,
    GeluTanhMul,
    LayerNorm,
    Linear,
    Norm,
    RMSNorm,
    Scale,
)
from aiomlc.models.graph.mixers import Mixer, build_mixer
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.shards import AllReduce
from aiomlc.models.graph.step import Step
from aiomlc.models.graph.streams import AddToLaterStreams, AltUp, Laurel


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
    post_per_layer_input_norm: Norm

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__()
        self.plan: LayerConfig = config.layers[layer]
        self.sum: Add = Add()
        self.all_reduce: AllReduce | None = AllReduce() if config.num_shards > 1 else None
        for part in self.plan.parts:  # In their order, which is also that of the parameters.
            match part:
                case self.plan.mixer.part:
                    setattr(self, part, build_mixer(config, layer, kv_dtype))
                case "mlp":
                    self.mlp: FeedForward = build_feed_forward(
                        self.plan.feed_forward, config.hidden_size, config.norm_eps
                    )
                case other if not self._add_own_part(config, other):
                    setattr(self, other, build_norm(config))
                case _:
                    pass

    def _add_own_part(self, config: DecoderConfig, part: str) -> bool:
        """Add a part that only some families have; return whether it is one."""
        hidden, streams = config.hidden_size, self.plan.streams
        match part:
            case "per_layer_input_gate":
                self.per_layer_input_gate: Linear = _linear(hidden, self.plan.embedding_size)
            case "per_layer_projection":
                self.per_layer_projection: Linear = _linear(self.plan.embedding_size, hidden)
            case "altup":
                assert streams is not None
                self.altup: AltUp = AltUp(streams, hidden, config.norm_eps)
            case "laurel":
                assert streams is not None
                self.laurel: Laurel = Laurel(streams.laurel_rank, hidden, config.norm_eps)
            case "layer_scalar":
                self.layer_scalar: nn.Parameter = nn.Parameter((1,), "float32")
            case _:
                return False

        return True

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, step: Step
    ) -> tuple[nn.Tensor | None, nn.Tensor]:
        """Return the layer's update of the residual stream, and the stream before it.

        Without an update, it is in the stream already.

        Args:
            update: The update of the layer before, which the stream does not have yet.
            residual: The residual stream `[n, hidden]`.
            step: What the layers of a step share.
        """
        raise NotImplementedError

    @property
    def mixer(self) -> Mixer:
        """The layer that mixes tokens, whose attribute has its name in checkpoints."""
        mixer: Mixer = getattr(self, self.plan.mixer.part)
        return mixer

    def _mix_normed(
        self, update: nn.Tensor | None, residual: nn.Tensor, step: Step
    ) -> tuple[nn.Tensor, nn.Tensor]:
        # Residual sum, norm and the following matrix are one call, so that one kernel can do all.
        if update is not None:
            mixed, residual = self.mixer.add_norm(update, residual, self.input_layernorm, step)
        else:
            mixed = self.mixer(self.input_layernorm(residual), step)
        return self._whole(mixed), residual

    def _whole(self, part: nn.Tensor) -> nn.Tensor:
        """Return the sum of what all shards computed for a mixer or a feed-forward layer."""
        return part if self.all_reduce is None else self.all_reduce(part)


class PreNormBlock(Block):
    """A mixer and a feed-forward layer, each with a norm of its input."""

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, step: Step
    ) -> tuple[nn.Tensor, nn.Tensor]:
        mixed, residual = self._mix_normed(update, residual, step)
        update, residual = self.mlp(mixed, residual, self.post_attention_layernorm)
        return self._whole(update), residual


class MlpNormBlock(Block):
    """A mixer, and a feed-forward layer with a norm of its input. It is the first block."""

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, step: Step
    ) -> tuple[nn.Tensor, nn.Tensor]:
        assert update is None, "no block is before it"
        mixed = self._whole(self.mixer(residual, step))
        update, residual = self.mlp(mixed, residual, self.post_attention_layernorm)
        return self._whole(update), residual


class SandwichNormBlock(Block):
    """A mixer and a feed-forward layer, each with a norm of its input and one of its output."""

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, step: Step
    ) -> tuple[nn.Tensor | None, nn.Tensor]:
        mixed, residual = self._mix_normed(update, residual, step)
        mixed = self.post_attention_layernorm(mixed)
        update, residual = self.mlp(mixed, residual, self.pre_feedforward_layernorm)
        return self.post_feedforward_layernorm(self._whole(update)), residual


class _EmbeddingBlock(SandwichNormBlock):
    """A sandwich block that may have an embedding of its own for each token."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__(config, layer, kv_dtype)
        size = self.plan.embedding_size
        self.first_column: int = config.hidden_size + layer * size
        self.has_embedding: bool = size > 0
        self.concat: ConcatColumns = ConcatColumns()
        self.gated: GeluTanhMul = GeluTanhMul()

    def _embedding(self, x: nn.Tensor, step: Step) -> nn.Tensor:
        """Return the update by the layer's embeddings, of which `x` is the gate."""
        gate = self.per_layer_input_gate(x)
        size = self.plan.embedding_size
        gated = self.gated(self.concat(gate, step.embedded, self.first_column, size))
        return self.post_per_layer_input_norm(self.per_layer_projection(gated))


class ScaledBlock(_EmbeddingBlock):
    """A sandwich block whose output has a factor, after a layer's own embedding if there is one."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__(config, layer, kv_dtype)
        self.scale: ScaleBy = ScaleBy()

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, step: Step
    ) -> tuple[nn.Tensor | None, nn.Tensor]:
        total, residual = super().forward(update, residual, step)
        assert total is not None
        if self.has_embedding:
            residual = self.sum(total, residual)
            total = self._embedding(residual, step)
        return self.scale(total, self.layer_scalar), self.scale(residual, self.layer_scalar)


class StreamsBlock(_EmbeddingBlock):
    """A sandwich block of one of several residual streams, which returns all of them."""

    def __init__(self, config: DecoderConfig, layer: int, kv_dtype: str) -> None:
        super().__init__(config, layer, kv_dtype)
        self.half: Scale = Scale(2.0**-0.5)
        self.add_update: AddToLaterStreams = AddToLaterStreams()

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, step: Step
    ) -> tuple[nn.Tensor | None, nn.Tensor]:
        assert update is None, "a block leaves no update"
        predicted = self.altup.predict(residual)
        active = self.altup.active(predicted)
        normed = self.input_layernorm(active)
        mixed = self.post_attention_layernorm(self.mixer(normed, step))
        x = self.half(self.sum(self.sum(active, mixed), self.laurel(normed)))
        mlp = self.mlp.without_norm(self.pre_feedforward_layernorm(x))
        x = self.sum(x, self.post_feedforward_layernorm(mlp))
        streams = self.altup.correct(predicted, x)
        own = self._embedding(self.altup.scaled_output(streams), step)
        return None, self.add_update(streams, own)


def _linear(inputs: int, outputs: int) -> Linear:
    return Linear(inputs, outputs, bias=False, out_dtype="float32")


class PostNormBlock(Block):
    """A mixer and a feed-forward layer, each with a norm of its output."""

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, step: Step
    ) -> tuple[nn.Tensor, nn.Tensor]:
        if update is not None:
            residual = self.sum(update, residual)
        mixed = self.post_attention_layernorm(self._whole(self.mixer(residual, step)))
        residual = self.sum(mixed, residual)
        update = self._whole(self.mlp.without_norm(residual))
        return self.post_feedforward_layernorm(update), residual


class ParallelBlock(Block):
    """Attention and a feed-forward layer on the same input, with a norm each or one for both."""

    def forward(
        self, update: nn.Tensor | None, residual: nn.Tensor, step: Step
    ) -> tuple[nn.Tensor, nn.Tensor]:
        if update is None:
            x = self.input_layernorm(residual)
        else:
            x, residual = self.input_layernorm.add(update, residual)
        mixed = self.mixer(x, step)
        if "post_attention_layernorm" in self.plan.parts:
            x = self.post_attention_layernorm(residual)
        return self._whole(self.sum(mixed, self.mlp.without_norm(x))), residual


_BLOCKS: Mapping[NormPlacement, type[Block]] = {
    "pre": PreNormBlock,
    "pre_mlp": MlpNormBlock,
    "post": PostNormBlock,
    "sandwich": SandwichNormBlock,
    "parallel": ParallelBlock,
    "parallel_shared": ParallelBlock,
}


def build_block(config: DecoderConfig, layer: int, kv_dtype: str) -> Block:
    """Return the block of layer `layer`."""
    plan = config.layers[layer]
    kind = ScaledBlock if plan.output_scale else _BLOCKS[plan.norm_placement]
    kind = kind if plan.streams is None else StreamsBlock
    return kind(config, layer, kv_dtype)
