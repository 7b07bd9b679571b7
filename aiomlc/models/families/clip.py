"""CLIP: a causal text tower and a vision tower, whose projections share a space."""

from __future__ import annotations

__all__ = ("parse", "parse_vision")

from typing import Final

from aiomlc.models.config.encoder import BlockEncoderConfig, TextHeadConfig
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.tower import LinearStep, MergeStep, NormStep
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.families.text_towers import TOWER_PREFIXES, parse_text_tower
from aiomlc.models.families.vision_towers import parse_tower

_TEXT: Final = {
    "vocab_size": 49_408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
}
_END_TOKEN: Final = 49_407
#: The end token of the first configs, which is wrong; it is the highest id of a text.
_UNKNOWN_END_TOKEN: Final = 2


def parse(fields: Fields) -> BlockEncoderConfig:
    """Read the text tower of a config of model type `clip`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    text = _part(fields, "text_config")
    end_token = text.integer("eos_token_id", _END_TOKEN)
    head = TextHeadConfig(
        source="text_projection",
        size=_size(fields),
        bias=False,
        end_token=-1 if end_token == _UNKNOWN_END_TOKEN else end_token,
    )
    return parse_text_tower(text, "clip", head, is_causal=True, defaults=_TEXT)


def parse_vision(fields: Fields) -> VisionConfig:
    """Read the vision tower of a config of model type `clip`, of which the class token is embedded.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    name = "vision_config"
    own = fields.replaced(**{name: fields.value(f"{name}_dict") or fields.value(name)})
    tower, size = parse_tower(own, is_fixed=True), _size(fields)
    hidden = tower.hidden_size
    norm = NormStep(
        source="vision_tower.post_layernorm",
        norm_kind="layer",
        eps=tower.settings["norm_eps"],
        size=hidden,
    )
    matrix = LinearStep(source="visual_projection", inputs=hidden, outputs=size, bias=False)
    return VisionConfig(
        model_type="clip",
        **tower.settings,
        num_hidden_layers=tower.num_layers,
        drops_class_token=False,
        projector=(MergeStep(size=hidden), norm, matrix),
        embedded_size=size,
        prefixes=TOWER_PREFIXES,
    )


def _part(fields: Fields, name: str) -> Fields:
    """Return the fields of a tower: those of older configs, if there are any, replace all."""
    old = f"{name}_dict"
    return fields.nested(old if old in fields else name)


def _size(fields: Fields) -> int:
    return fields.integer("projection_dim", 512)
