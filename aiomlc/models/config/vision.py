"""The config of a vision tower: a transformer over the patches of images."""

from __future__ import annotations

__all__ = ("LayerFeature", "VisionConfig")

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

from aiomlc.models.config.tower import (
    MergeStep,
    NormStep,
    PoolStep,
    ProjectorStep,
    TowerConfig,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFeature:
    """Rows that a layer of the decoder adds to those of an image (deepstack)."""

    layer: int  #: The tower's layer whose outputs are projected.
    projector: tuple[ProjectorStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig(TowerConfig):
    """The sizes that determine the graph of a tower and its projector."""

    kind: Literal["vision"] = "vision"
    image_size: int  #: The side of the largest square that the table of positions has.
    patch_size: int  #: The side of a patch.
    patch_inputs: int  #: The numbers of a patch.
    num_frames: int = 1  #: Equal frames that a patch has of an image.
    #: Whether the matrix of each frame is a tensor of its own; then a patch has one frame.
    separates_frames: bool = False
    patch_bias: bool
    has_class_token: bool = False  #: Whether each input begins with a learned token.
    drops_class_token: bool = True  #: Whether its output embeds nothing.
    num_positions: int = 0  #: Rows of the table of positions; 0 if there is none.
    pre_norm: bool = False  #: Whether the embeddings of patches are normed.
    #: Whether a learned query reads all outputs of an image, whose only row it becomes.
    attention_pool: bool = False
    merge: int = 1  #: The side of the block of patches that an output row stands for.
    window_layers: tuple[int, ...] = ()  #: Layers whose tokens see those of their window only.
    window_size: int = 0  #: The side of a window in pixels; 0 if there are none.
    position_taps: int = 1  #: Rows of the table of positions that a token's is interpolated from.
    features: tuple[LayerFeature, ...] = ()  #: Their rows follow those of the projector.
    newline: str = ""  #: A vector in the checkpoint that ends rows of an image; empty for none.

    @property
    def num_merged(self) -> int:
        """The tokens that are joined to an output row."""
        steps = (step for step in self.projector if isinstance(step, MergeStep | PoolStep))
        return math.prod(step.count for step in steps)

    @property
    def token_floats(self) -> int:
        """The numbers of a token that exist at once, at most: its pixels, the hidden states before
        and after a layer, and those within one."""
        return 2 * self.patch_inputs + self.layer_floats + 2 * self.embedded_size

    def in_gguf(self, qkv: tuple[str, ...] = ()) -> Self:
        """Return the tower as llama.cpp's converter writes it.

        Norms include their offsets, pairs of alternating frequencies are neighbors, and each frame
        of a patch has a matrix.

        Args:
            qkv: The names of queries, keys and values, if they are separated there only.
        """
        projector = tuple(
            replace(step, offset=0.0) if isinstance(step, NormStep) else step
            for step in self.projector
        )
        return replace(
            self,
            projector=projector,
            alternates_rows=self.rope_alternates,
            patch_inputs=self.patch_inputs // self.num_frames,
            separates_frames=self.num_frames > 1,
            names=replace(self.names, qkv=qkv or self.names.qkv),
        )
