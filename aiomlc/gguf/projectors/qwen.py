"""The projectors of Qwen's models."""

from __future__ import annotations

__all__ = ("QWEN2_5_VL", "QWEN2_VL", "QWEN3_VL")

import re
from collections.abc import Mapping
from typing import Any, Final

from aiomlc.gguf.model import GGUFModel
from aiomlc.gguf.projectors.projector import VISION, Projector, inner_size

_FEATURE: Final = re.compile(r"v\.deepstack\.(\d{1,6})\.norm\.weight", re.ASCII)
_FEATURE_PARTS: Final = {"norm": "norm", "fc1": "linear_fc1", "fc2": "linear_fc2"}
# llama.cpp's bounds of an image, in rows of the decoder's embeddings.
_MIN_TOKENS: Final = 8
_MAX_TOKENS: Final = 4096
_WINDOW_SIZE: Final = 112  # In pixels.


def _fields(tower: GGUFModel, vision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a tower by the names of Qwen's configs."""
    return {
        "depth": vision["num_hidden_layers"],
        "num_heads": vision["num_attention_heads"],
        "intermediate_size": inner_size(tower, vision),
        "out_hidden_size": tower.metadata.integer(f"{VISION}projection_dim"),
        "spatial_merge_size": _merge(tower),
    }


def _merge(tower: GGUFModel) -> int:
    return tower.metadata.integer(f"{VISION}spatial_merge_size", 2)


def _qwen2_vl(tower: GGUFModel, vision: dict[str, Any]) -> dict[str, Any]:
    hidden, fields = vision["hidden_size"], _fields(tower, vision)
    vision |= fields | {"embed_dim": hidden, "hidden_size": fields["out_hidden_size"]}
    vision["mlp_ratio"] = fields["intermediate_size"] // max(1, hidden)
    return {"model_type": "qwen2_vl"}


def _qwen2_5_vl(tower: GGUFModel, vision: dict[str, Any]) -> dict[str, Any]:
    """Each n-th layer sees whole images, where n is the pattern; if it is 0, all do."""
    key = f"{VISION}n_wa_pattern"
    pattern, depth = tower.metadata.integer(key), vision["num_hidden_layers"]
    if pattern < 0:
        raise tower.metadata.error(key, f"must be >= 0, got {pattern}")

    whole = range(pattern - 1, depth, pattern) if pattern else range(depth)
    vision |= _fields(tower, vision) | {
        "fullatt_block_indexes": list(whole),
        "window_size": tower.metadata.integer(f"{VISION}window_size", _WINDOW_SIZE),
    }
    return {"model_type": "qwen2_5_vl"}


def _qwen3_vl(tower: GGUFModel, vision: dict[str, Any]) -> dict[str, Any]:
    """Qwen 3.5 has the same tower, without features of layers."""
    vision |= _fields(tower, vision)
    if (table := tower.tensors.get("v.position_embd.weight")) is not None:
        vision["num_position_embeddings"] = table.shape[0]
    layers = _feature_layers(tower)
    vision["deepstack_visual_indexes"] = layers
    return {"model_type": "qwen3_vl" if layers else "qwen3_5"}


def _feature_layers(tower: GGUFModel) -> list[int]:
    return sorted(int(match[1]) for match in map(_FEATURE.fullmatch, tower.tensors) if match)


def _feature_modules(tower: GGUFModel) -> dict[str, str]:
    return {
        f"v.deepstack.{layer}.{own}": f"visual.deepstack_merger_list.{index}.{part}"
        for index, layer in enumerate(_feature_layers(tower))
        for own, part in _FEATURE_PARTS.items()
    }


def _images(tower: GGUFModel) -> dict[str, Any]:
    metadata = tower.metadata
    row = (_merge(tower) * metadata.integer(f"{VISION}patch_size")) ** 2
    smallest = metadata.integer(f"{VISION}image_min_pixels", _MIN_TOKENS * row)
    largest = metadata.integer(f"{VISION}image_max_pixels", _MAX_TOKENS * row)
    return {"size": {"shortest_edge": smallest, "longest_edge": largest}}


_LAYER: Final = {
    "ln1": "norm1",
    "ln2": "norm2",
    "attn_q": "attn.q",
    "attn_k": "attn.k",
    "attn_v": "attn.v",
    "attn_qkv": "attn.qkv",
    "attn_out": "attn.proj",
}
_PATCH: Final = "visual.patch_embed.proj"
_TENSORS: Final = {f"v.patch_embd.weight{end}": f"{_PATCH}.weight{end}" for end in ("", ".1")}
_MERGER: Final = {
    "v.post_ln": "visual.merger.ln_q",
    "mm.0": "visual.merger.mlp.0",
    "mm.2": "visual.merger.mlp.2",
}

QWEN2_VL: Final = Projector(
    fields=_qwen2_vl,
    images=_images,
    modules=_MERGER,
    layers="visual.blocks",
    layer=_LAYER | {"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
    tensors=_TENSORS,
    qkv=("attn.q", "attn.k", "attn.v"),
)
QWEN2_5_VL: Final = Projector(
    fields=_qwen2_5_vl,
    images=_images,
    modules=_MERGER,
    layers="visual.blocks",
    layer=_LAYER
    | {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"},
    tensors=_TENSORS,
    qkv=("attn.q", "attn.k", "attn.v"),
)
QWEN3_VL: Final = Projector(
    fields=_qwen3_vl,
    images=_images,
    modules={
        "v.patch_embd": _PATCH,
        "v.position_embd": "visual.pos_embed",
        "v.post_ln": "visual.merger.norm",
        "mm.0": "visual.merger.linear_fc1",
        "mm.2": "visual.merger.linear_fc2",
    },
    layers="visual.blocks",
    layer=_LAYER | {"ffn_up": "mlp.linear_fc1", "ffn_down": "mlp.linear_fc2"},
    tensors=_TENSORS,
    more_modules=_feature_modules,
)
