"""The projectors of towers in GGUF that are supported: their configs, and the names of tensors.

A tower is described as in a Hugging Face directory, with the names that its family has for tensors
after their prefixes were removed.
"""

from __future__ import annotations

__all__ = ("PROJECTORS", "Projector")

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from aiomlc.gguf.model import GGUFModel

_VISION: Final = "clip.vision."
_BLOCK: Final = re.compile(r"v\.blk\.(\d{1,6})\.(\w+)", re.ASCII)
# By field of a config: the key without its beginning.
_FIELDS: Final = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
}
_PROJECTOR: Final = "multi_modal_projector."
_EMBEDDINGS: Final = "vision_tower.embeddings."


@dataclass(frozen=True, slots=True)
class Projector:
    """A kind of projector, and the tower that comes with it."""

    #: Returns the config of a model, without that of the decoder; it has the common fields of
    #: `vision_config`.
    fields: Callable[[GGUFModel, dict[str, Any]], dict[str, Any]]
    #: Returns the fields of `preprocessor_config.json` beside mean and deviation.
    images: Callable[[GGUFModel], dict[str, Any]]
    modules: Mapping[str, str]  #: The names of modules, by those of the file.
    layers: str  #: The beginning of the names of layers.
    layer: Mapping[str, str]  #: The names of their modules, by those of the file.
    #: The names of tensors that are not those of their modules and `.weight` or `.bias`.
    tensors: Mapping[str, str] = field(default_factory=dict)

    def name(self, tensor: str) -> str:
        """Return the name that a tensor of the file has in a Hugging Face directory."""
        if tensor in self.tensors:
            return self.tensors[tensor]

        module, _, kind = tensor.rpartition(".")
        match = _BLOCK.fullmatch(module)
        if match is None or match[2] not in self.layer:
            return f"{self.modules.get(module, module)}.{kind}"

        name = f"{self.layers}.{match[1]}.{self.layer[match[2]]}"
        return name if match[2] in _VECTORS else f"{name}.{kind}"

    def config(self, tower: GGUFModel, hidden_size: int) -> dict[str, Any]:
        """Return the config of a model whose decoder has this hidden size.

        Raises:
            ModelLoadError: If a key is missing or has the wrong type.
        """
        metadata = tower.metadata
        vision: dict[str, Any] = {
            field: metadata.integer(_VISION + key) for field, key in _FIELDS.items()
        }
        vision["layer_norm_eps"] = metadata.number(f"{_VISION}attention.layer_norm_epsilon")
        own = self.fields(tower, vision)
        return {"text_config": {"hidden_size": hidden_size}, "vision_config": vision, **own}

    def image_settings(self, tower: GGUFModel) -> dict[str, Any]:
        """Return what `preprocessor_config.json` would say.

        Raises:
            ModelLoadError: If a key is missing or has the wrong type.
        """
        settings = self.images(tower)
        for name in ("image_mean", "image_std"):
            if values := tower.metadata.numbers(_VISION + name):
                settings[name] = values
        return settings


_VECTORS: Final = ("ls1", "ls2")  # Whose names in a directory are those of vectors.


def _image_size(tower: GGUFModel) -> int:
    return tower.metadata.integer(f"{_VISION}image_size")


def _merge(tower: GGUFModel, default: int) -> int:
    return tower.metadata.integer(f"{_VISION}projector.scale_factor", default)


def _activation(tower: GGUFModel, default: str) -> str:
    for key, name in (("clip.use_silu", "silu"), ("clip.use_gelu", "gelu")):
        if tower.metadata.boolean(key, False):
            return name

    return default


def _square(tower: GGUFModel) -> dict[str, Any]:
    size = _image_size(tower)
    return {"size": {"height": size, "width": size}}


def _idefics3(tower: GGUFModel, _: dict[str, Any]) -> dict[str, Any]:
    return {"model_type": "idefics3", "scale_factor": _merge(tower, 2)}


def _idefics3_images(tower: GGUFModel) -> dict[str, Any]:
    size = _image_size(tower)
    longest = tower.metadata.integer(f"{_VISION}preproc_image_size", size)
    return {"size": {"longest_edge": longest}, "max_image_size": {"longest_edge": size}}


def _gemma3(tower: GGUFModel, vision: dict[str, Any]) -> dict[str, Any]:
    side = vision["image_size"] // vision["patch_size"] // _merge(tower, 4)
    vision["model_type"] = "siglip_vision_model"
    return {"model_type": "gemma3", "mm_tokens_per_image": side * side}


def _internvl(tower: GGUFModel, vision: dict[str, Any]) -> dict[str, Any]:
    tensors = tower.tensors
    vision |= {
        "hidden_act": _activation(tower, "gelu"),
        "attention_bias": "v.blk.0.attn_q.bias" in tensors,
        "use_qk_norm": "v.blk.0.attn_q_norm.weight" in tensors,
        "norm_type": "layer_norm" if "v.blk.0.ln1.bias" in tensors else "rms_norm",
        "use_mean_pooling": "v.post_ln.weight" not in tensors,
    }
    return {"model_type": "internvl", "downsample_ratio": 1 / _merge(tower, 2)}


def _internvl_images(tower: GGUFModel) -> dict[str, Any]:
    limits = {
        f"{bound}_patches": tower.metadata.integer(f"{_VISION}preproc_{bound}_tiles", default)
        for bound, default in (("min", 1), ("max", 12))
    }
    return _square(tower) | limits


def _pixtral(tower: GGUFModel, vision: dict[str, Any]) -> dict[str, Any]:
    vision |= {
        "model_type": "pixtral",
        "hidden_act": _activation(tower, "silu"),
        "rope_theta": tower.metadata.number("rope.freq_base", 10_000.0),
    }
    merged = "mm.patch_merger.weight" in tower.tensors
    return {
        "model_type": "mistral3" if merged else "llava",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "multimodal_projector_bias": "mm.1.bias" in tower.tensors,
        "spatial_merge_size": tower.metadata.integer(f"{_VISION}spatial_merge_size", 2),
    }


def _pixtral_images(tower: GGUFModel) -> dict[str, Any]:
    return {"size": {"longest_edge": _image_size(tower)}}


_SIGLIP_MODULES: Final = {
    "v.patch_embd": f"{_EMBEDDINGS}patch_embedding",
    "v.position_embd": f"{_EMBEDDINGS}position_embedding",
    "v.post_ln": "vision_tower.post_layernorm",
}
_SIGLIP_LAYER: Final = {
    "ln1": "layer_norm1",
    "ln2": "layer_norm2",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
_LAYERS: Final = "vision_tower.encoder.layers"

#: The supported projectors, by llama.cpp's names.
PROJECTORS: Mapping[str, Projector] = MappingProxyType(
    {
        "idefics3": Projector(
            fields=_idefics3,
            images=_idefics3_images,
            modules=_SIGLIP_MODULES | {"mm.model.fc": f"{_PROJECTOR}proj"},
            layers=_LAYERS,
            layer=_SIGLIP_LAYER,
        ),
        "gemma3": Projector(
            fields=_gemma3,
            images=_square,
            modules=_SIGLIP_MODULES | {"mm.soft_emb_norm": f"{_PROJECTOR}mm_soft_emb_norm"},
            layers=_LAYERS,
            layer=_SIGLIP_LAYER,
            tensors={"mm.input_projection.weight": f"{_PROJECTOR}mm_input_projection_weight"},
        ),
        "internvl": Projector(
            fields=_internvl,
            images=_internvl_images,
            modules={
                "v.patch_embd": f"{_EMBEDDINGS}patch_embeddings.projection",
                "v.post_ln": "vision_tower.layernorm",
                "mm.model.mlp.0": f"{_PROJECTOR}layer_norm",
                "mm.model.mlp.1": f"{_PROJECTOR}linear_1",
                "mm.model.mlp.3": f"{_PROJECTOR}linear_2",
            },
            layers="vision_tower.encoder.layer",
            layer={
                "ln1": "layernorm_before",
                "ln2": "layernorm_after",
                "attn_q": "attention.q_proj",
                "attn_k": "attention.k_proj",
                "attn_v": "attention.v_proj",
                "attn_q_norm": "attention.q_norm",
                "attn_k_norm": "attention.k_norm",
                "attn_out": "attention.projection_layer",
                "ffn_up": "mlp.fc1",
                "ffn_down": "mlp.fc2",
                "ls1": "lambda_1",
                "ls2": "lambda_2",
            },
            tensors={
                "v.class_embd": f"{_EMBEDDINGS}cls_token",
                "v.position_embd.weight": f"{_EMBEDDINGS}position_embeddings",
            },
        ),
        "pixtral": Projector(
            fields=_pixtral,
            images=_pixtral_images,
            modules={
                "v.patch_embd": "vision_tower.patch_conv",
                "v.pre_ln": "vision_tower.ln_pre",
                "mm.1": f"{_PROJECTOR}linear_1",
                "mm.2": f"{_PROJECTOR}linear_2",
                "mm.input_norm": f"{_PROJECTOR}norm",
                "mm.patch_merger": f"{_PROJECTOR}patch_merger.merging_layer",
            },
            layers="vision_tower.transformer.layers",
            layer={
                "ln1": "attention_norm",
                "ln2": "ffn_norm",
                "attn_q": "attention.q_proj",
                "attn_k": "attention.k_proj",
                "attn_v": "attention.v_proj",
                "attn_out": "attention.o_proj",
                "ffn_gate": "feed_forward.gate_proj",
                "ffn_up": "feed_forward.up_proj",
                "ffn_down": "feed_forward.down_proj",
            },
        ),
    }
)
