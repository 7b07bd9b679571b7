"""SigLIP, and SigLIP 2 with images of a fixed size: a text tower that reads padding, and a vision
tower that pools by attention."""

from __future__ import annotations

__all__ = ("parse", "parse_vision")

from typing import Final

from aiomlc.models.config.encoder import BlockEncoderConfig, TextHeadConfig
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.families.text_towers import TOWER_PREFIXES, parse_text_tower
from aiomlc.models.families.vision_towers import parse_tower

_TEXT: Final = {
    "vocab_size": 32_000,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 64,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}


def parse(fields: Fields) -> BlockEncoderConfig:
    """Read the text tower of a config of model type `siglip`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported,
            or if vectors of texts have another size than those of images.
    """
    text = fields.nested("text_config").with_defaults(**_TEXT)
    size = text.integer("projection_size", text.integer("hidden_size"))
    images = parse_tower(fields, "siglip_vision_model", is_fixed=True).hidden_size
    if size != images:
        problem = f"must be the hidden_size of the vision_config ({images}), got {size}"
        raise text.error("projection_size", problem)

    pad_token = text.integer("pad_token_id", 1)
    if pad_token >= (vocab_size := text.integer("vocab_size")):
        problem = f"must be < vocab_size ({vocab_size}), got {pad_token}"
        raise text.error("pad_token_id", problem)

    head = TextHeadConfig(source="text_model.head", size=size, bias=True, pad_token=pad_token)
    return parse_text_tower(text, "siglip", head, is_causal=False, defaults=_TEXT)


def parse_vision(fields: Fields) -> VisionConfig:
    """Read the vision tower of a config of model type `siglip`.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    vision = fields.nested("vision_config")
    if not vision.boolean("vision_use_head", True):
        raise vision.error("vision_use_head", "must be true: the head makes vectors of images")

    tower = parse_tower(fields, "siglip_vision_model", is_fixed=True)
    return VisionConfig(
        model_type="siglip",
        **tower.settings,
        num_hidden_layers=tower.num_layers,
        post_norm=True,
        attention_pool=True,
        projector=(),
        embedded_size=tower.hidden_size,
        prefixes=TOWER_PREFIXES,
    )
