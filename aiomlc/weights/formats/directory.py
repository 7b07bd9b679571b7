"""The tensors of a model directory, in whichever format it has."""

from __future__ import annotations

__all__ = ("read_source",)

from dataclasses import replace
from pathlib import Path

from aiomlc.gguf.shards import is_gguf
from aiomlc.models.config.quantization import read_quantization
from aiomlc.validation.model_files import load_errors
from aiomlc.weights.formats import mlc, safetensors
from aiomlc.weights.formats.gguf import read_gguf_source
from aiomlc.weights.formats.source import Source


def read_source(directory: Path) -> Source:
    """Read the header of a GGUF file, or of a directory MLC's weight index, else safetensors.

    Raises:
        ModelLoadError: If a file is missing or invalid.
    """
    with load_errors(directory):
        if is_gguf(directory):
            return read_gguf_source(directory)

        read = mlc.read_mlc if _is_mlc(directory) else safetensors.read_safetensors
        return replace(read(directory), quantization=read_quantization(directory))


def _is_mlc(directory: Path) -> bool:
    """Return whether a directory has MLC's weights, or a config of MLC and no weights at all."""
    if any((directory / name).exists() for name in mlc.INDEX_NAMES):
        return True

    others = (safetensors.SINGLE_NAME, safetensors.INDEX_NAME)
    has_config = (directory / "mlc-chat-config.json").exists()
    return has_config and not any((directory / name).exists() for name in others)
