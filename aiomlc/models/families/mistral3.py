"""Mistral 3: Pixtral's tower, blocks of whose outputs are joined, before a plain decoder."""

from __future__ import annotations

__all__ = ("parse_vision", "text_fields")

from typing import Final

from aiomlc.models.config.fields import Fields
from aiomlc.models.config.tower import LinearStep, MergeStep, NormStep
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.families import vision_towers
from aiomlc.models.families.llava import feature_layers, mlp_projector
from aiomlc.models.families.vision_towers import HUB_PREFIXES, parse_tower

_DEFAULTS: Final = {
    "vocab_size": 131_072,
    "hidden_size": 5120,
    "intermediate_size": 32_768,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
}
_NAME: Final = "multi_modal_projector"


def text_fields(fields: Fields) -> Fields:
    """Return the fields of the decoder."""
    text = vision_towers.text_fields(fields, "mistral")
    return text.with_defaults(**_DEFAULTS, sliding_window=None)


def parse_vision(fields: Fields) -> VisionConfig:
    """Read the tower of a config of model type `mistral3`.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    tower = parse_tower(fields, "pixtral")
    text = text_fields(fields)
    size, hidden = tower.hidden_size, text.integer("hidden_size")
    merge = fields.integer("spatial_merge_size", 2)
    projector = fields.with_defaults(multimodal_projector_bias=False)
    return VisionConfig(
        model_type="mistral3",
        **tower.settings,
        num_hidden_layers=feature_layers(fields, tower, -1),
        projector=(
            NormStep(
                source=f"{_NAME}.norm",
                norm_kind="rms",
                eps=text.number("rms_norm_eps"),
                size=size,
            ),
            MergeStep(size=size, count=merge**2, channels_first=True),
            LinearStep(
                source=f"{_NAME}.patch_merger.merging_layer",
                inputs=merge**2 * size,
                outputs=size,
                bias=False,
            ),
            *mlp_projector(projector, size, hidden),
        ),
        embedded_size=hidden,
        merge=merge,
        prefixes=HUB_PREFIXES,
    )
