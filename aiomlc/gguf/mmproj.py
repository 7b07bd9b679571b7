"""The vision tower of a model in GGUF, a file of its own: `mmproj-*.gguf` beside the model."""

from __future__ import annotations

__all__ = (
    "find_mmproj",
    "image_settings",
    "is_mmproj",
    "tower_fields",
    "tower_names",
    "tower_qkv",
)

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aiomlc.gguf.model import GGUFModel, read_gguf
from aiomlc.gguf.projectors import PROJECTORS, Projector, projector_kind

_log = logging.getLogger("aiomlc")

_PREFIX: Final = "mmproj"


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
    if (kind := projector_kind(tower)) in PROJECTORS:
        return tower

    _log.warning("%s: the projector %r is not supported: no images are read", tower.path, kind)
    return None


def _projector(tower: GGUFModel) -> Projector:
    return PROJECTORS[projector_kind(tower)]


def tower_fields(tower: GGUFModel, hidden_size: int) -> dict[str, Any]:
    """Return the config of a tower, with that of a decoder of this hidden size.

    Raises:
        ModelLoadError: If a key is missing or has the wrong type.
    """
    return _projector(tower).config(tower, hidden_size)


def image_settings(tower: GGUFModel) -> dict[str, Any]:
    """Return what `preprocessor_config.json` would say.

    Raises:
        ModelLoadError: If a key is missing or has the wrong type.
    """
    return _projector(tower).image_settings(tower)


def tower_names(tower: GGUFModel) -> Mapping[str, str]:
    """Return the names that tensors have in a Hugging Face directory, by those of the file."""
    return _projector(tower).names(tower)


def tower_qkv(tower: GGUFModel) -> tuple[str, ...]:
    """Return the names of a layer's modules that a directory has one in place of; often none."""
    return _projector(tower).qkv
