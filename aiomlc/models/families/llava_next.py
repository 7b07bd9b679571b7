"""LLaVA-NeXT: LLaVA with several tiles per image, whose rows end in a learned vector."""

from __future__ import annotations

__all__ = ("parse_vision",)

from dataclasses import replace

from aiomlc.models.config.fields import Fields
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.families import llava


def parse_vision(fields: Fields) -> VisionConfig:
    """Read the tower of a config of model type `llava_next`.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    config = llava.parse_vision(fields)
    if config.has_class_token and not config.drops_class_token:
        raise fields.error(
            "vision_feature_select_strategy", 'must be "default" for a tower with a class token'
        )

    return replace(config, model_type="llava_next", newline="image_newline")
