"""The towers that families of multimodal models share: CLIP and SigLIP."""

from __future__ import annotations

__all__ = ("HUB_PREFIXES", "Tower", "parse_tower", "text_fields")

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from aiomlc.models.config.activation import Activation
from aiomlc.models.config.fields import Fields, quote
from aiomlc.models.config.tower import TowerNames

#: The names of directories of the hub, and of those that transformers 4.52 to 4.57 wrote.
HUB_PREFIXES: Final = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
    ("model.vision_tower.vision_model.", "vision_tower."),
    ("model.vision_tower.", "vision_tower."),
    ("vision_tower.vision_model.", "vision_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
    ("model.image_newline", "image_newline"),
)
_ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "quick_gelu": "quick_gelu",
    }
)
#: The defaults of transformers for decoders whose fields are absent, as in older directories.
_TEXT_DEFAULTS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "llama": {
            "vocab_size": 32_000,
            "hidden_size": 4096,
            "intermediate_size": 11_008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "max_position_embeddings": 2048,
        },
        "mistral": {
            "vocab_size": 32_000,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131_072,
        },
    }
)
_CLIP: Final = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
}
_SIGLIP: Final = {
    **_CLIP,
    "patch_size": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}
_GATED: Mapping[str, Activation] = MappingProxyType({"gelu": "gelu", "silu": "silu"})
_PIXTRAL_EPS: Final = 1e-5
_PIXTRAL_THETA: Final = 10_000.0
_PIXTRAL_NAMES: Final = TowerNames(
    patch="vision_tower.patch_conv",
    pre_norm="vision_tower.ln_pre",
    layers="vision_tower.transformer.layers",
    attention_norm="attention_norm",
    qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    output="attention.o_proj",
    mlp_norm="ffn_norm",
    up=("feed_forward.gate_proj", "feed_forward.up_proj"),
    down="feed_forward.down_proj",
)
_IDEFICS3: Final = {
    **_SIGLIP,
    "hidden_size": 1152,
    "num_attention_heads": 16,
    "patch_size": 32,
}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "clip_vision_model": _CLIP,
        "siglip_vision_model": _SIGLIP,
        "idefics3_vision": _IDEFICS3,
        "pixtral": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 1024,
            "patch_size": 16,
            "hidden_act": "gelu",
        },
        "internvl_vision": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 448,
            "patch_size": 14,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-6,
        },
    }
)


@dataclass(frozen=True, slots=True)
class Tower:
    """The config of a tower before its use in a family."""

    settings: Mapping[str, Any]  #: Fields of `VisionConfig`.
    hidden_size: int
    num_layers: int  #: Of the checkpoint.
    image_size: int
    patch_size: int


def text_fields(fields: Fields, model_type: str = "llama") -> Fields:
    """Return the fields of the decoder of a multimodal model.

    Args:
        fields: The model's config.
        model_type: The type of a decoder that does not name its own.
    """
    text = fields.nested("text_config")
    model_type = text.string("model_type", model_type)
    text = text.replaced(model_type=model_type).with_defaults(**_TEXT_DEFAULTS.get(model_type, {}))
    for name in ("tie_word_embeddings", "quantization_config"):
        if name in fields:
            text = text.replaced(**{name: fields.value(name)})
    return text


def parse_tower(
    fields: Fields, default: str = "clip_vision_model", *, is_fixed: bool = False
) -> Tower:
    """Read the `vision_config` of CLIP, SigLIP or a tower that differs little from them.

    Args:
        fields: The model's config.
        default: The model type of a tower that does not name its own.
        is_fixed: Whether all towers of the family are of this type, whatever they name.

    Raises:
        ModelLoadError: If a field is missing or has a value that is not supported.
    """
    vision = fields.nested("vision_config")
    kind = default if is_fixed else vision.string("model_type", default)
    if kind not in _DEFAULTS:
        raise vision.error("model_type", f"is {quote(kind)}: this tower is not supported")

    vision = vision.with_defaults(**_DEFAULTS[kind])
    return _parse_pixtral(vision) if kind == "pixtral" else _parse(vision, kind)


def _parse_pixtral(vision: Fields) -> Tower:
    hidden, heads = vision.integer("hidden_size"), vision.integer("num_attention_heads")
    if hidden % (4 * heads):
        problem = f"must divide hidden_size / 4 ({hidden / 4}), got {heads}"
        raise vision.error("num_attention_heads", problem)

    size, patch = _sides(vision)
    rope = vision.nested("rope_parameters")
    settings = {
        "image_size": size,
        "patch_size": patch,
        "patch_inputs": vision.integer("num_channels", 3) * patch * patch,
        "patch_bias": False,
        "hidden_size": hidden,
        "intermediate_size": vision.integer("intermediate_size"),
        "num_heads": heads,
        "head_dim": hidden // heads,
        "activation": _GATED[vision.choice("hidden_act", tuple(_GATED))],
        "gated": True,
        "norm_kind": "rms",
        "norm_eps": _PIXTRAL_EPS,
        "rope_theta": rope.number("rope_theta", vision.number("rope_theta", _PIXTRAL_THETA)),
        "rope_alternates": True,
        "pre_norm": True,
        "qkv_bias": False,
        "output_bias": False,
        "mlp_bias": False,
        "names": _PIXTRAL_NAMES,
    }
    return Tower(settings, hidden, vision.integer("num_hidden_layers"), size, patch)


def _parse(vision: Fields, kind: str) -> Tower:
    is_clip = kind == "clip_vision_model"
    has_class_token = is_clip or kind == "internvl_vision"
    hidden, heads = vision.integer("hidden_size"), vision.integer("num_attention_heads")
    if hidden % heads:
        problem = f"must divide hidden_size ({hidden}), got {heads}"
        raise vision.error("num_attention_heads", problem)

    size, patch = _sides(vision)
    patches = (size // patch) ** 2
    settings = {
        "image_size": size,
        "patch_size": patch,
        "patch_inputs": vision.integer("num_channels", 3) * patch * patch,
        "patch_bias": not is_clip,
        "hidden_size": hidden,
        "intermediate_size": vision.integer("intermediate_size"),
        "num_heads": heads,
        "head_dim": hidden // heads,
        "activation": _ACTIVATIONS[vision.choice("hidden_act", tuple(_ACTIVATIONS))],
        "norm_eps": vision.number("layer_norm_eps"),
        "has_class_token": has_class_token,
        "num_positions": patches + has_class_token,
        "pre_norm": is_clip,
        "names": TowerNames(),
    }
    layers = vision.integer("num_hidden_layers")
    return Tower(settings, hidden, layers, size, patch)


def _sides(vision: Fields) -> tuple[int, int]:
    """Return the sides of the largest image and of a patch."""
    size, patch = (_side(vision, name) for name in ("image_size", "patch_size"))
    if patch > size:
        raise vision.error("patch_size", f"must be at most the image_size, {size}, got {patch}")

    return size, patch


def _side(fields: Fields, name: str) -> int:
    """Return the side of a square, which may also be given as two equal ones."""
    if not fields.is_list(name):
        return fields.integer(name)

    sides = fields.integers(name)
    if len(set(sides)) != 1:
        raise fields.error(name, f"must be one side, or two equal ones, got {quote(sides)}")

    return fields.replaced(**{name: sides[0]}).integer(name)
