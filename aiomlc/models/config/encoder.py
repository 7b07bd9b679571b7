"""The configs of encoders."""

from __future__ import annotations

__all__ = (
    "Alibi",
    "BlockEncoderConfig",
    "ClassifierConfig",
    "EncoderConfig",
    "EncoderNames",
    "EncoderPooling",
    "PositionBuckets",
    "RelativePositions",
    "TextHeadConfig",
)

from dataclasses import dataclass
from typing import Literal

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.rope import RopeConfig

#: The input of a head: the hidden state of a token, or the mean of all.
EncoderPooling = Literal["first", "mean", "last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierConfig:
    """The layers of a sequence classifier after the encoder, under their names in checkpoints."""

    num_labels: int
    pooling: EncoderPooling = "first"
    dense: str = ""  #: The matrix between encoder and output; empty if there is none.
    dense_bias: bool = True
    activation: Literal["tanh", "gelu", "relu"] = "tanh"  #: Of the outputs of `dense`.
    norm: str = ""  #: The LayerNorm without bias after the activation; empty if there is none.
    output: str  #: The matrix whose outputs are the labels' logits.
    output_bias: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderNames:
    """The names of a checkpoint's tensors of an encoder, without `.weight` and `.bias`.

    The matrices of queries, keys and values may be one tensor, and so may those of a gate and what
    it multiplies. The names of a layer's tensors follow `layer`, which has a place for its number;
    or, if there are groups of layers, for the numbers of the group and of its layer.
    """

    words: str = "embeddings.word_embeddings"
    positions: str = "embeddings.position_embeddings"
    token_types: str = "embeddings.token_type_embeddings"
    norm: str = "embeddings.LayerNorm"
    embedding_projection: str = ""
    layer: str = "encoder.layer.{}."
    group_size: int = 1  #: The layers of a group.
    qkv: tuple[str, ...] = ("attention.self.query", "attention.self.key", "attention.self.value")
    attention_output: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    up: tuple[str, ...] = ("intermediate.dense",)  #: The gate, if there is one, is the first.
    down: str = "output.dense"
    output_norm: str = "output.LayerNorm"
    query_norm: str = ""
    key_norm: str = ""
    residual_norm: str = ""
    position_bias: str = "encoder.relative_attention_bias"
    relative_positions: str = "encoder.rel_embeddings"
    relative_norm: str = "encoder.LayerNorm"
    relative_projections: tuple[str, ...] = ()  #: The queries, then the keys.

    def of_layer(self, layer: int) -> str:
        """Return the prefix of the names of a layer's tensors."""
        return self.layer.format(*divmod(layer, self.group_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBuckets:
    """Learned biases of attention scores, which all layers share: a number per head and bucket.

    Half of the buckets are for keys before the query. Of a half, the first half of buckets are for
    one distance each, the others for ranges that grow by a factor up to `max_distance` (T5, MPNet).
    """

    num_buckets: int
    max_distance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alibi:
    """Biases of attention scores that grow with the distance (https://arxiv.org/abs/2108.12409)."""

    slopes: tuple[float, ...]  #: Of the heads.

    @staticmethod
    def of_heads(num_heads: int) -> Alibi:
        """Return the slopes of the paper: a geometric series for a power of 2 of heads.

        Further heads have every second slope of twice as many.
        """
        power = 1 << (num_heads.bit_length() - 1)
        slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
        others = [2.0 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2)]
        return Alibi(slopes=(*slopes, *others[: num_heads - power]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativePositions:
    """Learned vectors of relative positions, of disentangled attention (DeBERTa).

    Each layer projects them to queries and keys, and adds their products with the keys and queries
    of tokens to attention scores (https://arxiv.org/abs/2006.03654).
    """

    count: int  #: Vectors on each side: of keys after the query, and of the others.
    #: The distance from which all have the last vector. Nearer than half of `count`, each has its
    #: own vector, and farther ones share them in logarithmic ranges; 0 if none share any.
    max_distance: int
    has_norm: bool  #: Whether the vectors are normalized.
    has_table: bool  #: Whether positions are rows of a table of embeddings, too.
    has_projections: bool  #: Whether they have projections of their own, not those of tokens.


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The sizes that determine the graph of an encoder with norms after its layers, as BERT's.

    The positions of tokens are rows of a table, rotate queries and keys, or bias attention scores.
    """

    kind: Literal["encoder"] = "encoder"
    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int  #: Layers with weights of their own.
    #: The layers as they are computed, some of them several times; empty: each once.
    layer_order: tuple[int, ...] = ()
    num_attention_heads: int
    embedding_size: int | None = None  #: If embeddings are projected to `hidden_size`.
    num_positions: int  #: Rows of the table of positions; without one, tokens of an input.
    position_offset: int = 0  #: The row of an input's first token.
    num_token_types: int  #: 0 if there is no table of types.
    layer_norm_eps: float
    rope: RopeConfig | None = None
    #: Numbers added to attention scores, beside a table of positions or in place of one.
    position_bias: PositionBuckets | Alibi | RelativePositions | None = None
    activation: Literal["gelu", "gelu_tanh"] = "gelu"  #: Without a gate.
    gate: Literal["silu", "gelu"] | None = None  #: The activation of a gate; None for plain GELU.
    #: Whether the fused matrix of a gate has what it multiplies first.
    has_gate_last: bool = False
    qkv_bias: bool = True
    output_bias: bool = True  #: Of attention.
    up_bias: bool = True
    down_bias: bool = True
    #: Whether queries and keys are normalized, over all heads, and the sum of the outputs of
    #: attention and its inputs once more.
    has_more_norms: bool = False
    names: EncoderNames = EncoderNames()
    #: The prefix of the names of the encoder's tensors in a Hugging Face directory.
    hf_prefix: str = ""
    classifier: ClassifierConfig | None = None  #: None for an encoder that embeds.

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of one input."""
        return self.num_positions - self.position_offset

    @property
    def has_position_table(self) -> bool:
        """Whether positions are rows of a table."""
        match self.position_bias:
            case Alibi():
                return False
            case RelativePositions(has_table=has_table):
                return has_table
            case _:
                return self.rope is None

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers as they are computed."""
        return self.layer_order or tuple(range(self.num_hidden_layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextHeadConfig:
    """The head of a text tower, whose vectors are in the space of those of images.

    The state of the last token is multiplied by a matrix. An end token or padding makes the last
    token.
    """

    source: str  #: The matrix in a checkpoint, without `.weight`.
    size: int  #: The numbers of a vector.
    bias: bool
    #: The token that ends a text; -1 is the one with the highest id of a text. None for padding.
    end_token: int | None = None
    #: The padding of texts to the maximum length, if the files of the tokenizer have no other.
    pad_token: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEncoderConfig:
    """An encoder of a decoder's blocks, whose attention has no KV cache.

    A window of attention has as many tokens on both sides of a token, unless it is causal.
    """

    kind: Literal["encoder"] = "encoder"
    blocks: DecoderConfig
    is_causal: bool
    has_embedding_norm: bool = False
    #: The table of positions in a checkpoint, whose rows are added to those of tokens; empty for
    #: none.
    position_table: str = ""
    hf_prefix: str = ""  #: See `EncoderConfig`.
    classifier: ClassifierConfig | None = None
    #: Whether the outputs are the logits of all tokens after the last one of an input.
    has_token_logits: bool = False
    text_head: TextHeadConfig | None = None  #: Of a model that embeds images, too.
    position_offset: int = 0
    num_token_types: int = 1

    @property
    def model_type(self) -> str:
        """The family."""
        return self.blocks.model_type

    @property
    def vocab_size(self) -> int:
        """The tokens of the vocabulary."""
        return self.blocks.vocab_size

    @property
    def hidden_size(self) -> int:
        """The numbers of a hidden state."""
        return self.blocks.hidden_size

    @property
    def num_hidden_layers(self) -> int:
        """The number of layers."""
        return self.blocks.num_hidden_layers

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of one input."""
        return self.blocks.context_window_size
