"""InternVL: a tower whose layers are scaled, and whose outputs are joined in blocks of four."""

from __future__ import annotations

__all__ = ("parse_vision",)

from typing import Final

from aiomlc.models.config.fields import Fields
from aiomlc.models.config.tower import MergeStep, NormStep, TowerNames
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.families.llava import drops_class_token, feature_layers, mlp_projector
from aiomlc.models.families.vision_towers import HUB_PREFIXES, parse_tower, text_fields

_NAMES: Final = TowerNames(
    patch="vision_tower.embeddings.patch_embeddings.projection",
    class_token="vision_tower.embeddings.cls_token",
    positions="vision_tower.embeddings.position_embeddings",
    layers="vision_tower.encoder.layer",
    post_norm="vision_tower.layernorm",
    attention_norm="layernorm_before",
    qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    qk_norm=("attention.q_norm", "attention.k_norm"),
    output="attention.projection_layer",
    mlp_norm="layernorm_after",
)
_RATIO: Final = 0.5


def parse_vision(fields: Fields) -> VisionConfig:
    """Read the tower of a config of model type `internvl`.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    tower = parse_tower(fields, "internvl_vision", is_fixed=True)
    vision = fields.nested("vision_config")
    ratio = fields.number("downsample_ratio", _RATIO)
    merge = round(1 / ratio)
    side = tower.image_size // tower.patch_size
    if merge * ratio != 1 or side % merge:
        problem = f"must be 1 / n, for a number n that divides {side}, got {ratio}"
        raise fields.error("downsample_ratio", problem)

    if not drops_class_token(fields):
        raise fields.error("vision_feature_select_strategy", 'must be "default"')

    if not vision.boolean("use_absolute_position_embeddings", True):
        raise vision.error("use_absolute_position_embeddings", "must be true, got false")

    layers = feature_layers(fields, tower, -1)
    hidden = text_fields(fields, "qwen2").integer("hidden_size")
    joined = merge**2 * tower.hidden_size
    norm = vision.choice("norm_type", ("layer_norm", "rms_norm"), "layer_norm")
    is_last = layers == tower.num_layers
    return VisionConfig(
        model_type="internvl",
        **{**tower.settings, "names": _NAMES},
        num_hidden_layers=layers,
        norm_kind="layer" if norm == "layer_norm" else "rms",
        qkv_bias=vision.boolean("attention_bias", False),
        qk_norm="full_width" if vision.boolean("use_qk_norm", False) else "none",
        layer_scale=True,
        post_norm=is_last and not vision.boolean("use_mean_pooling", True),
        projector=(
            MergeStep(size=tower.hidden_size, count=merge**2),
            NormStep(
                source="multi_modal_projector.layer_norm", norm_kind="layer", eps=1e-5, size=joined
            ),
            *mlp_projector(fields.without("multimodal_projector_bias"), joined, hidden),
        ),
        embedded_size=hidden,
        merge=merge,
        prefixes=HUB_PREFIXES,
    )
