"""The projectors of towers in GGUF that are supported, each with its tower.

A tower is described as in a Hugging Face directory, with the names that its family has for tensors
after their prefixes were removed.
"""

from __future__ import annotations

__all__ = ("PROJECTORS", "Projector", "projector_kind")

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aiomlc.gguf.model import GGUFModel
from aiomlc.gguf.projectors.fixed import GEMMA3, IDEFICS3, INTERNVL, PIXTRAL
from aiomlc.gguf.projectors.llava import LLAVA, llava_kind
from aiomlc.gguf.projectors.projector import Projector
from aiomlc.gguf.projectors.qwen import QWEN2_5_VL, QWEN2_VL, QWEN3_VL

_KINDS: Final = ("clip.projector_type", "clip.vision.projector_type")

#: By llama.cpp's names.
PROJECTORS: Mapping[str, Projector] = MappingProxyType(
    {
        "gemma3": GEMMA3,
        "idefics3": IDEFICS3,
        "internvl": INTERNVL,
        "mlp": LLAVA,
        "pixtral": PIXTRAL,
        "qwen2.5vl_merger": QWEN2_5_VL,
        "qwen2vl_merger": QWEN2_VL,
        "qwen3vl_merger": QWEN3_VL,
    }
)


def projector_kind(tower: GGUFModel) -> str:
    """Return the kind of a projector, by llama.cpp's name.

    Raises:
        ModelLoadError: If a key has the wrong type.
    """
    # The first scripts knew no other projector.
    default = "mlp" if tower.metadata.boolean("clip.has_llava_projector", False) else ""
    kind = next((tower.metadata.string(key) for key in _KINDS if key in tower.metadata), default)
    return llava_kind(tower) if kind == "mlp" else kind
