"""A Hugging Face directory with random weights, written without torch and in little memory."""

from __future__ import annotations

__all__ = ("write_random_model",)

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from aiomlc.models import DecoderConfig, decoder_parameters, read_description

_CHUNK: Final = 1 << 22  # Elements of the random values that a tensor repeats.
_SCALE: Final = 0.02


def write_random_model(directory: Path, config: Mapping[str, Any]) -> None:
    """Write `config.json` and weights in bfloat16, unless they exist.

    For models whose tensors are matrices and vectors. Speed does not depend on their values.
    """
    path = directory / "model.safetensors"
    if path.is_file():
        return

    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    description = read_description(directory).config
    assert isinstance(description, DecoderConfig)
    shapes = dict(_tensors(description))
    offset, entries = 0, {}
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        entries[name] = {
            "dtype": "BF16",
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    header = json.dumps(entries).encode()
    values = np.random.Generator(np.random.PCG64(0)).normal(0, _SCALE, _CHUNK).astype(np.float32)
    chunk = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for shape in shapes.values():
            size = 2 * int(np.prod(shape))
            for start in range(0, size, len(chunk)):
                file.write(chunk[: min(len(chunk), size - start)])
    partial.rename(path)


def _tensors(config: DecoderConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the tensors of a checkpoint and their shapes."""
    for parameter in decoder_parameters(config):
        rows = _source_rows(config, len(parameter.sources), parameter.shape[0])
        for source, count in zip(parameter.sources, rows, strict=True):
            yield source, (count, *parameter.shape[1:])


def _source_rows(config: DecoderConfig, sources: int, rows: int) -> list[int]:
    """Return the rows of each source of a parameter: three are queries, keys and values."""
    if sources != 3:
        return [rows // sources] * sources

    shape = config.cache_shape
    keys = shape.num_kv_heads * shape.head_dim
    return [rows - 2 * keys, keys, keys]
