"""The tensors of a model directory, in whichever format it has."""

from __future__ import annotations

__all__ = ("read_source", "read_tower_source")

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aiomlc.cache.files import Stamp, stamp_of
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.gguf.shards import shard_paths
from aiomlc.models.config.quantization import read_quantization
from aiomlc.validation.model_files import load_errors
from aiomlc.weights.formats import mlc, safetensors
from aiomlc.weights.formats.gguf import read_gguf_source, read_mmproj_source
from aiomlc.weights.formats.source import Source


def read_source(files: ConfigFiles) -> Source:
    """Read the header of a GGUF file, or of a directory MLC's weight index, else safetensors.

    Raises:
        ModelLoadError: If a file is missing or invalid.
    """
    model = files.model
    with load_errors(model):
        if files.is_gguf:
            stamps = _stamps(shard_paths(model))
            return replace(read_gguf_source(model), stamps=stamps)

        stamps = _stamps(model.iterdir())
        read = mlc.read_mlc if _is_mlc(model) else safetensors.read_safetensors
        return replace(read(model), quantization=read_quantization(files), stamps=stamps)


def read_tower_source(files: ConfigFiles) -> Source:
    """Read the header of the file with the tower of a model: that of a GGUF file is another one.

    Raises:
        ModelLoadError: If a file is missing or invalid.
    """
    if not files.is_gguf:
        return read_source(files)

    with load_errors(files.model):
        source = read_mmproj_source(files.model)
        return replace(source, stamps=_stamps(source.files))


def _stamps(paths: Iterable[Path]) -> dict[str, Stamp]:
    """Return the stamps of the files that can be accessed; reading reports the others."""
    stamps = {}
    for path in paths:
        with suppress(OSError):
            stamps[path.name] = stamp_of(path.stat())

    return stamps


def _is_mlc(directory: Path) -> bool:
    """Return whether a directory has MLC's weights, or a config of MLC and no weights at all."""
    if any((directory / name).exists() for name in mlc.INDEX_NAMES):
        return True

    others = (safetensors.SINGLE_NAME, safetensors.INDEX_NAME)
    has_config = (directory / "mlc-chat-config.json").exists()
    return has_config and not any((directory / name).exists() for name in others)
