"""The vision tower of a model in GGUF, a file of its own: `mmproj-*.gguf` beside the model.

The config of the tower, its image processor and the names of its tensors are those of a Hugging
Face directory. Of the projectors that llama.cpp knows, that of Idefics 3 and SmolVLM is supported.
"""

from __future__ import annotations

__all__ = ("find_mmproj", "image_settings", "is_mmproj", "tower_fields", "tower_names")

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aiomlc.gguf.model import GGUFModel, read_gguf

_log = logging.getLogger("aiomlc")

_PREFIX: Final = "mmproj"
_VISION: Final = "clip.vision."
_PROJECTORS: Final = ("clip.projector_type", "clip.vision.projector_type")
_MODEL: Final = {
    "v.patch_embd": "vision_tower.embeddings.patch_embedding",
    "v.position_embd": "vision_tower.embeddings.position_embedding",
    "v.post_ln": "vision_tower.post_layernorm",
    "mm.model.fc": "multi_modal_projector.proj",
}
_LAYER: Final = {
    "ln1": "layer_norm1",
    "ln2": "layer_norm2",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
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


def is_mmproj(path: Path) -> bool:
    """Return whether a GGUF file is a tower, by its name."""
    return path.name.lower().startswith(_PREFIX)


def find_mmproj(model: Path) -> GGUFModel | None:
    """Return the tower beside the GGUF file of a decoder, of several the one with most bits.

    None if there is none, or one that is not supported, which is logged.

    Raises:
        ModelLoadError: If the file is invalid.
    """
    files = [path for path in model.parent.glob("*.gguf") if is_mmproj(path)]
    if not files or is_mmproj(model):
        return None

    tower = read_gguf(max(files, key=lambda path: (path.stat().st_size, path.name)))
    kind = next((tower.metadata.string(key) for key in _PROJECTORS if key in tower.metadata), "")
    if kind == "idefics3":
        return tower

    _log.warning("%s: the projector %r is not supported: no images are read", tower.path, kind)
    return None


def tower_fields(tower: GGUFModel, hidden_size: int) -> dict[str, Any]:
    """Return the config of a tower, with that of a decoder of this hidden size.

    Raises:
        ModelLoadError: If a key is missing or has the wrong type.
    """
    metadata = tower.metadata
    vision: dict[str, Any] = {
        field: metadata.integer(_VISION + key) for field, key in _FIELDS.items()
    }
    vision["layer_norm_eps"] = metadata.number(f"{_VISION}attention.layer_norm_epsilon")
    return {
        "model_type": "idefics3",
        "scale_factor": metadata.integer(f"{_VISION}projector.scale_factor", 2),
        "text_config": {"hidden_size": hidden_size},
        "vision_config": vision,
    }


def image_settings(tower: GGUFModel) -> dict[str, Any]:
    """Return what `preprocessor_config.json` would say.

    Raises:
        ModelLoadError: If a key is missing or has the wrong type.
    """
    metadata = tower.metadata
    size = metadata.integer(f"{_VISION}image_size")
    settings: dict[str, Any] = {
        "size": {"longest_edge": metadata.integer(f"{_VISION}preproc_image_size", size)},
        "max_image_size": {"longest_edge": size},
    }
    for name in ("image_mean", "image_std"):
        if values := metadata.numbers(_VISION + name):
            settings[name] = values
    return settings


def tower_names(tower: GGUFModel) -> Mapping[str, str]:
    """Return the names that tensors have in a Hugging Face directory, by those of the file."""
    names = {}
    for tensor in tower.tensors:
        module, _, kind = tensor.rpartition(".")
        match = _BLOCK.fullmatch(module)
        if match is not None and match[2] in _LAYER:
            module = f"vision_tower.encoder.layers.{match[1]}.{_LAYER[match[2]]}"
        names[tensor] = f"{_MODEL.get(module, module)}.{kind}"
    return names
