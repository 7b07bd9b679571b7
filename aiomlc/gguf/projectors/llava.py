"""The projector of LLaVA, in files of the scripts before llama.cpp's converter wrote towers.

Newer files of LLaVA with a Pixtral tower have the projector `pixtral`.
"""

from __future__ import annotations

__all__ = ("LLAVA", "llava_kind")

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
    square,
)

_FEATURES: Final = f"{VISION}feature_layer"
_GRIDS: Final = f"{VISION}image_grid_pinpoints"
_NEWLINE: Final = "model.image_newline"
_CLASS: Final = "v.class_embd"


def llava_kind(tower: GGUFModel) -> str:
    """Return the kind of a projector that calls itself `mlp`, as several others do.

    Raises:
        ModelLoadError: If a key has the wrong type.
    """
    if "mm.3.weight" in tower.tensors:
        return "mlp_norm"  # Of Yi VL, as llama.cpp names it.

    return "mlp of several layers" if len(_feature_layers(tower)) > 1 else "mlp"


def _feature_layers(tower: GGUFModel) -> list[int]:
    return tower.metadata.integers(_FEATURES)


def _fields(tower: GGUFModel, vision: dict[str, Any]) -> dict[str, Any]:
    """A file has only the layers that are used, unless it says which one is read."""
    is_clip = _CLASS in tower.tensors
    default = "quick_gelu" if is_clip else "gelu_pytorch_tanh"
    vision |= {
        "model_type": "clip_vision_model" if is_clip else "siglip_vision_model",
        "hidden_act": activation(tower, default),
    }
    fields = {
        "model_type": "llava",
        "vision_feature_layer": (*_feature_layers(tower), vision["num_hidden_layers"])[0],
        "vision_feature_select_strategy": "default" if is_clip else "full",
    }
    return fields | {"model_type": "llava_next"} if _has_tiles(tower) else fields


def _has_tiles(tower: GGUFModel) -> bool:
    """Return whether images become several tiles (LLaVA 1.6)."""
    return _NEWLINE in tower.tensors and _GRIDS in tower.metadata


def _images(tower: GGUFModel) -> dict[str, Any]:
    size, grids = image_size(tower), tower.metadata.integers(_GRIDS)
    if _CLASS not in tower.tensors and not _has_tiles(tower):
        return square(tower)

    settings: dict[str, Any] = {
        "size": {"shortest_edge": size},
        "crop_size": {"height": size, "width": size},
    }
    if _has_tiles(tower):
        if len(grids) % 2:
            problem = f"must have an even number of integers, got {len(grids)}"
            raise tower.metadata.error(_GRIDS, problem)

        settings["image_grid_pinpoints"] = [grids[i : i + 2] for i in range(0, len(grids), 2)]
    return settings


LLAVA: Final = Projector(
    fields=_fields,
    images=_images,
    modules={
        "v.patch_embd": f"{EMBEDDINGS}patch_embedding",
        "v.position_embd": f"{EMBEDDINGS}position_embedding",
        "v.pre_ln": "vision_tower.pre_layrnorm",
        "mm.0": f"{PROJECTOR}linear_1",
        "mm.2": f"{PROJECTOR}linear_2",
    },
    layers=SIGLIP_LAYERS,
    layer=SIGLIP_LAYER,
    tensors={_CLASS: f"{EMBEDDINGS}class_embedding", _NEWLINE: "image_newline"},
)
