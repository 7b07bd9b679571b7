"""The tensors of a GGUF file, under the names of the Hugging Face model that it was made from."""

from __future__ import annotations

__all__ = ("read_gguf_source",)

from pathlib import Path

from aiomlc.gguf.config import config_fields
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.tensor_names import TensorPiece, tensor_pieces
from aiomlc.models.parameters.tensor_names import hf_name
from aiomlc.weights.formats.source import Source, SourceTensor

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
    return Source(model.path, model.path, tensors, model.files, is_mlc=False)


def _source_tensor(piece: TensorPiece) -> SourceTensor:
    """Return a piece as a tensor, with the name that the file has for it."""
    kind = piece.tensor.type.name
    dtype = _FLOATS.get(kind, kind)
    return SourceTensor(piece.tensor.name, piece.path, piece.offset, dtype, piece.shape)
