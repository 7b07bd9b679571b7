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
        source_name = hf_name(model_type, name)
        tensors[source_name] = _source_tensor(source_name, piece)
    return Source(model.path, model.path, tensors, model.files, is_mlc=False)


def _source_tensor(name: str, piece: TensorPiece) -> SourceTensor:
    kind = piece.tensor.type.name
    return SourceTensor(name, piece.path, piece.offset, _FLOATS.get(kind, kind), piece.shape)
