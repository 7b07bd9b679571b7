"""The tensors of a GGUF file, under the names of the Hugging Face model that it was made from."""

from __future__ import annotations

__all__ = ("read_gguf_source", "read_mmproj_source")

import re
from functools import partial
from pathlib import Path
from typing import Final

from aiomlc.gguf.config import config_fields
from aiomlc.gguf.mmproj import find_mmproj, tower_names
from aiomlc.gguf.model import GGUFModel, read_gguf
from aiomlc.gguf.tensor_names import TensorPiece, expected_names, tensor_pieces
from aiomlc.models.parameters.tensor_names import hf_name
from aiomlc.weights.formats.source import Source, SourceTensor

_NUMBER: Final = re.compile(r"\.(\d+)\.")  # Of the layer, then of the expert.
_FLOATS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


def read_gguf_source(path: Path) -> Source:
    """Return the tensors of the model that `path` is the first file of.

    Raises:
        ModelLoadError: If a file is missing or invalid.
    """
    model = read_gguf(path)
    model_type = config_fields(model).values["model_type"]
    tensors = {}
    for name, piece in tensor_pieces(model).items():
        tensors[hf_name(model_type, name)] = _source_tensor(piece)
    return Source(
        model.path,
        model.path,
        tensors,
        model.files,
        is_mlc=False,
        name_in_file=partial(_name_in_file, model, model_type),
        is_gguf=True,
    )


def read_mmproj_source(path: Path) -> Source:
    """Return the tensors of the tower beside the GGUF file of a decoder, which has one.

    Raises:
        ModelLoadError: If the file is missing or invalid.
    """
    tower = find_mmproj(path)
    assert tower is not None, "it was found when the config was read"
    names = tower_names(tower)
    files = {name: own for own, name in names.items()}
    tensors = {}
    for own, tensor in tower.tensors.items():
        kind = tensor.type.name
        dtype = _FLOATS.get(kind, kind)
        tensors[names[own]] = SourceTensor(own, tensor.path, tensor.offset, dtype, tensor.shape)
    return Source(
        tower.path,
        tower.path,
        tensors,
        tower.files,
        is_mlc=False,
        name_in_file=lambda name: files.get(name, name),
        is_gguf=True,
    )


def _name_in_file(model: GGUFModel, model_type: str, name: str) -> str:
    """Return the name that GGUF has for a tensor of the Hugging Face model."""
    layer, expert, *_ = (*map(int, _NUMBER.findall(name)), None, None)
    names = expected_names(model, layer, expert)
    return next((own for graph, own in names if hf_name(model_type, graph) == name), name)


def _source_tensor(piece: TensorPiece) -> SourceTensor:
    """Return a piece as a tensor, with the name that the file has for it."""
    kind = piece.tensor.type.name
    dtype = _FLOATS.get(kind, kind)
    return SourceTensor(piece.tensor.name, piece.path, piece.offset, dtype, piece.shape)
