"""The projectors of Gemma 3, Idefics 3, InternVL, and Pixtral with Mistral Small 3."""

from __future__ import annotations

__all__ = ("GEMMA3", "IDEFICS3", "INTERNVL", "PIXTRAL")

from typing import Any, Final

from aiomlc.gguf.model import GGUFModel
from aiomlc.gguf.projectors.projector import (
    EMBEDDINGS,
    PROJECTOR,
    SIGLIP_LAYER,
    SIGLIP_LAYERS,
    VISION,
    Projector,
    activation,
    image_size,
    merge,
    square,
)


def _idefics3(tower: GGUFModel, _: dict[str, Any]) -> dict[str, Any]:
    return {"model_type": "idefics3", "scale_factor": merge(tower, 2)}


def _idefics3_images(tower: GGUFModel) -> dict[str, Any]:
    size = image_size(tower)
    longest = tower.metadata.integer(f"{VISION}preproc_image_size", size)
    return {"size": {"longest_edge": longest}, "max_image_size": {"longest_edge": size}}


def _gemma3(tower: GGUFModel, vision: dict[str, Any]) -> dict[str, Any]:
    side = vision["image_size"] // vision["patch_size"] // merge(tower, 4)
    vision["model_type"] = "siglip_vision_model"
    return {"model_type": "gemma3", "mm_tokens_per_image": side * side}


def _internvl(tower: GGUFModel, vision: dict[str, Any]) -> dict[str, Any]:
    tensors = tower.tensors
    vision |= {
        "hidden_act": activation(tower, "gelu"),
        "attention_bias": "v.blk.0.attn_q.bias" in tensors,
        "use_qk_norm": "v.blk.0.attn_q_norm.weight" in tensors,
        "norm_type": "layer_norm" if "v.blk.0.ln1.bias" in tensors else "rms_norm",
        "use_mean_pooling": "v.post_ln.weight" not in tensors,
    }
    return {"model_type": "internvl", "downsample_ratio": 1 / merge(tower, 2)}


def _internvl_images(tower: GGUFModel) -> dict[str, Any]:
    limits = {
        f"{bound}_patches": tower.metadata.integer(f"{VISION}preproc_{bound}_tiles", default)
        for bound, default in (("min", 1), ("max", 12))
    }
    return square(tower) | limits


def _pixtral(tower: GGUFModel, vision: dict[str, Any]) -> dict[str, Any]:
    vision |= {
        "model_type": "pixtral",
        "hidden_act": activation(tower, "silu"),
        "rope_theta": tower.metadata.number("rope.freq_base", 10_000.0),
    }
    merged = "mm.patch_merger.weight" in tower.tensors
    return {
        "model_type": "mistral3" if merged else "llava",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "multimodal_projector_bias": "mm.1.bias" in tower.tensors,
        "spatial_merge_size": tower.metadata.integer(f"{VISION}spatial_merge_size", 2),
    }


def _pixtral_images(tower: GGUFModel) -> dict[str, Any]:
    return {"size": {"longest_edge": image_size(tower)}}


_SIGLIP_MODULES: Final = {
    "v.patch_embd": f"{EMBEDDINGS}patch_embedding",
    "v.position_embd": f"{EMBEDDINGS}position_embedding",
    "v.post_ln": "vision_tower.post_layernorm",
}
IDEFICS3: Final = Projector(
    fields=_idefics3,
    images=_idefics3_images,
    modules=_SIGLIP_MODULES | {"mm.model.fc": f"{PROJECTOR}proj"},
    layers=SIGLIP_LAYERS,
    layer=SIGLIP_LAYER,
)
GEMMA3: Final = Projector(
    fields=_gemma3,
    images=square,
    modules=_SIGLIP_MODULES | {"mm.soft_emb_norm": f"{PROJECTOR}mm_soft_emb_norm"},
    layers=SIGLIP_LAYERS,
    layer=SIGLIP_LAYER,
    tensors={"mm.input_projection.weight": f"{PROJECTOR}mm_input_projection_weight"},
)
INTERNVL: Final = Projector(
    fields=_internvl,
    images=_internvl_images,
    modules={
        "v.patch_embd": f"{EMBEDDINGS}patch_embeddings.projection",
        "v.post_ln": "vision_tower.layernorm",
        "mm.model.mlp.0": f"{PROJECTOR}layer_norm",
        "mm.model.mlp.1": f"{PROJECTOR}linear_1",
        "mm.model.mlp.3": f"{PROJECTOR}linear_2",
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
        "v.class_embd": f"{EMBEDDINGS}cls_token",
        "v.position_embd.weight": f"{EMBEDDINGS}position_embeddings",
    },
)
PIXTRAL: Final = Projector(
    fields=_pixtral,
    images=_pixtral_images,
    modules={
        "v.patch_embd": "vision_tower.patch_conv",
        "v.pre_ln": "vision_tower.ln_pre",
        "mm.1": f"{PROJECTOR}linear_1",
        "mm.2": f"{PROJECTOR}linear_2",
        "mm.input_norm": f"{PROJECTOR}norm",
        "mm.patch_merger": f"{PROJECTOR}patch_merger.merging_layer",
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
)
