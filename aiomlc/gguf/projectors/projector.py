"""A kind of projector in GGUF: how its tower is described in a Hugging Face directory."""

from __future__ import annotations

__all__ = (
    "EMBEDDINGS",
    "PROJECTOR",
    "SIGLIP_LAYER",
    "SIGLIP_LAYERS",
    "VISION",
    "Projector",
    "activation",
    "image_size",
    "inner_size",
    "merge",
    "square",
)

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiomlc.gguf.model import GGUFModel

#: The beginnings of keys, and of names in a Hugging Face directory.
VISION: Final = "clip.vision."
PROJECTOR: Final = "multi_modal_projector."
EMBEDDINGS: Final = "vision_tower.embeddings."
#: The layers of towers of CLIP and SigLIP.
SIGLIP_LAYERS: Final = "vision_tower.encoder.layers"
SIGLIP_LAYER: Final = {
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
_DOWN: Final = "v.blk.0.ffn_down.weight"
_VECTORS: Final = ("ls1", "ls2")  # Whose names in a directory are those of vectors.
# By field of a config: the key without its beginning.
_FIELDS: Final = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
}


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
    qkv: tuple[str, ...] = ()  #: Modules of a layer that a directory has one in place of.
    #: Returns the names of modules of which a file has some, and another file others.
    more_modules: Callable[[GGUFModel], Mapping[str, str]] = lambda _: {}

    def names(self, tower: GGUFModel) -> dict[str, str]:
        """Return the names that tensors have in a Hugging Face directory, by those of the file."""
        modules = {**self.modules, **self.more_modules(tower)}
        layer = dict(self.layer)
        if _is_mlp_swapped(tower):
            layer |= {"ffn_up": layer["ffn_down"], "ffn_down": layer["ffn_up"]}
        return {tensor: self._name(tensor, modules, layer) for tensor in tower.tensors}

    def _name(self, tensor: str, modules: Mapping[str, str], layer: Mapping[str, str]) -> str:
        if tensor in self.tensors:
            return self.tensors[tensor]

        module, _, kind = tensor.rpartition(".")
        match = _BLOCK.fullmatch(module)
        if match is None or match[2] not in layer:
            return f"{modules.get(module, module)}.{kind}"

        name = f"{self.layers}.{match[1]}.{layer[match[2]]}"
        return name if match[2] in _VECTORS else f"{name}.{kind}"

    def config(self, tower: GGUFModel, hidden_size: int) -> dict[str, Any]:
        """Return the config of a model whose decoder has this hidden size.

        Raises:
            ModelLoadError: If a key is missing or has the wrong type.
        """
        metadata = tower.metadata
        vision: dict[str, Any] = {
            field: metadata.integer(VISION + key) for field, key in _FIELDS.items()
        }
        vision["layer_norm_eps"] = metadata.number(f"{VISION}attention.layer_norm_epsilon")
        own = self.fields(tower, vision)
        return {"text_config": {"hidden_size": hidden_size}, "vision_config": vision, **own}

    def image_settings(self, tower: GGUFModel) -> dict[str, Any]:
        """Return what `preprocessor_config.json` would say.

        Raises:
            ModelLoadError: If a key is missing or has the wrong type.
        """
        settings = self.images(tower)
        for name in ("image_mean", "image_std"):
            if values := tower.metadata.numbers(VISION + name):
                settings[name] = values
        return settings


def _is_mlp_swapped(tower: GGUFModel) -> bool:
    """Return whether the matrices of MLPs have each other's names, as older scripts wrote them."""
    down = tower.tensors.get(_DOWN)
    if down is None or len(down.shape) != 2:
        return False

    rows, columns = down.shape
    return rows != columns == tower.metadata.integer(f"{VISION}embedding_length")


def inner_size(tower: GGUFModel, vision: Mapping[str, Any]) -> int:
    """Return the inner size of MLPs, which files of Qwen's models do not say."""
    down = tower.tensors.get(_DOWN)
    if down is None or len(down.shape) != 2:
        return int(vision["intermediate_size"])

    outputs, inputs = down.shape
    return outputs if _is_mlp_swapped(tower) else inputs


def image_size(tower: GGUFModel) -> int:
    """Return the side of the square that a tower reads, in pixels."""
    return tower.metadata.integer(f"{VISION}image_size")


def merge(tower: GGUFModel, default: int) -> int:
    """Return the side of the block of patches that becomes one row."""
    return tower.metadata.integer(f"{VISION}projector.scale_factor", default)


def activation(tower: GGUFModel, default: str) -> str:
    """Return the activation of MLPs, by transformers' name."""
    for key, name in (("clip.use_silu", "silu"), ("clip.use_gelu", "gelu")):
        if tower.metadata.boolean(key, False):
            return name

    return default


def square(tower: GGUFModel) -> dict[str, Any]:
    """Return the settings of a processor that resizes images to the tower's square."""
    size = image_size(tower)
    return {"size": {"height": size, "width": size}}
