"""LLaVA and Pixtral: a tower of CLIP, SigLIP or Pixtral, and an MLP before a plain decoder."""

from __future__ import annotations

__all__ = ("drops_class_token", "feature_layers", "mlp_projector", "parse_vision")

from aiomlc.models.config.fields import Fields, quote
from aiomlc.models.config.tower import ActivationStep, LinearStep, MergeStep, ProjectorStep
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.families.vision_towers import (
    HUB_PREFIXES,
    Tower,
    parse_tower,
    text_fields,
)

_FEATURE_LAYER = -2


def parse_vision(fields: Fields) -> VisionConfig:
    """Read the tower of a config of model type `llava`.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    tower = parse_tower(fields)
    if "rope_theta" in tower.settings and drops_class_token(fields):
        raise fields.error("vision_feature_select_strategy", 'must be "full" for this tower')

    hidden = text_fields(fields).integer("hidden_size")
    return VisionConfig(
        model_type="llava",
        **tower.settings,
        num_hidden_layers=feature_layers(fields, tower, _FEATURE_LAYER),
        projector=(
            MergeStep(size=tower.hidden_size),
            *mlp_projector(fields, tower.hidden_size, hidden),
        ),
        embedded_size=hidden,
        drops_class_token=drops_class_token(fields),
        prefixes=HUB_PREFIXES,
    )


def feature_layers(fields: Fields, tower: Tower, default: int) -> int:
    """Return how many of a tower's layers are computed: up to `vision_feature_layer`."""
    name = "vision_feature_layer"
    layer = fields.integer(name, default)
    count = layer + 1 + tower.num_layers if layer < 0 else layer
    if not 0 < count <= tower.num_layers:
        bound = tower.num_layers
        raise fields.error(name, f"must be between {-bound} and {bound}, got {quote(layer)}")

    return count


def drops_class_token(fields: Fields) -> bool:
    """Return whether `vision_feature_select_strategy` drops the first token of each image."""
    strategy = fields.choice("vision_feature_select_strategy", ("default", "full"), "default")
    return strategy == "default"


def mlp_projector(fields: Fields, inputs: int, outputs: int) -> tuple[ProjectorStep, ...]:
    """Return the steps of a projector with two matrices."""
    fields.choice("projector_hidden_act", ("gelu",), "gelu")
    bias = fields.boolean("multimodal_projector_bias", True)
    name = "multi_modal_projector.linear_"
    return (
        LinearStep(source=f"{name}1", inputs=inputs, outputs=outputs, bias=bias),
        ActivationStep(activation="gelu"),
        LinearStep(source=f"{name}2", inputs=outputs, outputs=outputs, bias=bias),
    )
