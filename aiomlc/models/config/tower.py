"""The config that all towers share: the layers of a transformer over parts of an image or of a
recording, and what makes embeddings of a decoder from its outputs."""

from __future__ import annotations

__all__ = (
    "ActivationStep",
    "LinearStep",
    "MergeStep",
    "NormStep",
    "PoolStep",
    "ProjectorStep",
    "ScaleStep",
    "StandardizeStep",
    "TowerConfig",
    "TowerNames",
    "UnitNormStep",
)

from dataclasses import dataclass
from typing import Literal

from aiomlc.models.config.activation import Activation
from aiomlc.models.config.decoder import NormKind
from aiomlc.models.config.layers import QKNormKind
from aiomlc.models.config.rope import RopeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerNames:
    """The names of a tower's tensors in a checkpoint, whose modules end in `.weight`, `.bias`."""

    patch: str = "vision_tower.embeddings.patch_embedding"
    class_token: str = "vision_tower.embeddings.class_embedding"  #: A vector.
    positions: str = "vision_tower.embeddings.position_embedding.weight"  #: A table.
    pre_norm: str = "vision_tower.pre_layrnorm"
    layers: str = "vision_tower.encoder.layers"
    post_norm: str = "vision_tower.post_layernorm"
    attention_pool: str = "vision_tower.head"
    # Of a layer:
    attention_norm: str = "layer_norm1"
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    qk_norm: tuple[str, str] = ("self_attn.q_norm", "self_attn.k_norm")
    output: str = "self_attn.out_proj"
    mlp_norm: str = "layer_norm2"
    up: tuple[str, ...] = ("mlp.fc1",)  #: With a gate, that before the up projection.
    down: str = "mlp.fc2"
    scales: tuple[str, str] = ("lambda_1", "lambda_2")  #: Vectors.
    #: Of the outputs of attention and of the MLP.
    output_norms: tuple[str, str] = ("post_attention_layernorm", "post_feedforward_layernorm")


@dataclass(frozen=True, slots=True, kw_only=True)
class NormStep:
    """A norm of rows of `size` numbers."""

    kind: Literal["norm"] = "norm"
    source: str
    norm_kind: NormKind
    eps: float
    size: int
    offset: float = 0.0  #: Added to the weights of the checkpoint.


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStep:
    """Gathers rows of `size` numbers by the input `order`, and joins each `count` of them to one.

    It also drops rows, such as those of class tokens. By `channels_first`, the numbers of a channel
    are neighbors in a joined row; by default, those of a row are.
    """

    kind: Literal["merge"] = "merge"
    count: int = 1
    size: int
    channels_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStep:
    """The mean of each `count` rows, which the input `order` gathers."""

    kind: Literal["pool"] = "pool"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearStep:
    """A matrix product."""

    kind: Literal["linear"] = "linear"
    source: str
    inputs: int
    outputs: int
    bias: bool
    transposed: bool = False  #: Whether the checkpoint has `[inputs, outputs]`, named `source`.


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationStep:
    """An activation function."""

    kind: Literal["activation"] = "activation"
    activation: Activation


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleStep:
    """Multiplication by a number."""

    kind: Literal["scale"] = "scale"
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardizeStep:
    """Subtraction of a stored row, then multiplication by another."""

    kind: Literal["standardize"] = "standardize"
    bias: str  #: A vector in the checkpoint, and so is `scale`.
    scale: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitNormStep:
    """An RMSNorm without weights of rows of `size` numbers."""

    kind: Literal["unit_norm"] = "unit_norm"
    size: int
    eps: float


ProjectorStep = (
    NormStep
    | MergeStep
    | PoolStep
    | LinearStep
    | ActivationStep
    | ScaleStep
    | StandardizeStep
    | UnitNormStep
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerConfig:
    """The sizes and kinds of a tower's layers, and its projector."""

    model_type: str  #: Of the whole model.
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int  #: Those that are computed: later ones may be unused.
    num_heads: int
    head_dim: int
    activation: Activation
    gated: bool = False
    norm_kind: NormKind = "layer"
    norm_eps: float
    #: Whether the frequencies of a head alternate between the axes; by default, each axis has
    #: those of half a head.
    rope_alternates: bool = False
    rope_theta: float = 0.0  #: Of two-dimensional RoPE; 0 if there is none.
    post_norm: bool = False  #: Whether the outputs of the last layer are normed.
    qkv_bias: bool = True
    output_bias: bool = True
    mlp_bias: bool = True
    qk_norm: QKNormKind = "none"
    layer_scale: bool = False
    output_norms: bool = False  #: Whether the outputs of attention and of the MLP are normed.
    value_norm: bool = False  #: Whether values have an RMSNorm without weights.
    attention_scale: float = 0.0  #: Factor on products of queries and keys; 0 for the usual one.
    #: Whether the two axes of RoPE have a half of each head, and not a half of each pair.
    halves_heads: bool = False
    #: Whether the dimensions of a pair are neighbors in the checkpoint.
    alternates_rows: bool = False
    projector: tuple[ProjectorStep, ...]
    embedded_size: int  #: The numbers of an output row.
    names: TowerNames = TowerNames()
    #: Beginnings of the names of tensors, and how such names begin here. The first one counts.
    prefixes: tuple[tuple[str, str], ...] = ()

    @property
    def rope(self) -> RopeConfig | None:
        """Two-dimensional RoPE; None if the tower has none."""
        if not self.rope_theta:
            return None

        pairs = len(range(0, self.head_dim // 2, 2))
        kind = "alternating" if self.rope_alternates else "axial"
        return RopeConfig(rope_type=kind, theta=self.rope_theta, sections=(0, pairs, pairs))

    @property
    def layer_floats(self) -> int:
        """The numbers of a token that exist at once in a layer, at most: the hidden states before
        and after it, and those within it."""
        heads = 4 * self.num_heads * self.head_dim
        return 4 * self.hidden_size + max(heads, 3 * self.intermediate_size)

    def renamed(self, name: str) -> str:
        """Return the name by which the parameters call a tensor of a checkpoint."""
        for begin, replacement in self.prefixes:
            if name.startswith(begin):
                return replacement + name.removeprefix(begin)

        return name
