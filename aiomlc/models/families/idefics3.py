"""Idefics 3 and SmolVLM: SigLIP's tower, blocks of whose outputs are joined, and one matrix."""

from __future__ import annotations

__all__ = ("parse_smolvlm_vision", "parse_vision")

from dataclasses import replace

from aiomlc.models.config.fields import Fields
from aiomlc.models.config.tower import LinearStep, MergeStep
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.families.vision_towers import parse_tower, text_fields

_PREFIXES = (
    ("model.text_model.", "model."),
    ("model.vision_model.", "vision_tower."),
    ("model.connector.modality_projection.", "multi_modal_projector."),
)


def parse_vision(fields: Fields) -> VisionConfig:
    """Read the tower of a config of model type `idefics3`.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    tower = parse_tower(fields, "idefics3_vision", is_fixed=True)
    merge = fields.integer("scale_factor", 2)
    side = tower.image_size // tower.patch_size
    if side % merge:
        raise fields.error("scale_factor", f"must divide the {side} patches of a side, got {merge}")

    joined = merge**2 * tower.hidden_size
    hidden = text_fields(fields).integer("hidden_size")
    return VisionConfig(
        model_type="idefics3",
        **tower.settings,
        num_hidden_layers=tower.num_layers,
        post_norm=True,
        projector=(
            MergeStep(size=tower.hidden_size, count=merge**2),
            LinearStep(
                source="multi_modal_projector.proj", inputs=joined, outputs=hidden, bias=False
            ),
        ),
        embedded_size=hidden,
        merge=merge,
        prefixes=_PREFIXES,
    )


def parse_smolvlm_vision(fields: Fields) -> VisionConfig:
    """Read the tower of a config of model type `smolvlm`.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    return replace(parse_vision(fields), model_type="smolvlm")
