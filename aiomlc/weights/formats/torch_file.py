"""The tensors of a file that `torch.save` wrote, found without running what the file says.

Such a file is a ZIP archive without compression: a pickle that describes the tensors, and a file
for the data of each. Format: `torch/serialization.py` of PyTorch 1.6 and later.
"""

from __future__ import annotations

__all__ = ("read_torch_file",)

import io
import math
import zipfile
from pathlib import Path
from typing import Final

from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.model_files import open_file
from aiomlc.weights.formats.source import DTYPE_BYTES, SourceTensor, load_error
from aiomlc.weights.formats.torch_pickle import CONVERT, StoredTensor, read_torch_pickle

_MAX_PICKLE_BYTES: Final = 1 << 17  # A tensor takes about 200.
_LOCAL_HEADER_BYTES: Final = 30  # Of ZIP, before the name and the extra field.


def read_torch_file(path: Path) -> dict[str, SourceTensor]:
    """Return the tensors of a dictionary of tensors.

    Raises:
        ModelLoadError: If the file is not such a dictionary in PyTorch's ZIP format, or contains
            anything else.
    """
    with open_file(path) as file:
        if not zipfile.is_zipfile(file):
            raise load_error(f"is not a file of PyTorch 1.6 or later: {CONVERT}", path=path)

        with zipfile.ZipFile(file) as archive:
            files = _stored_files(path, archive)
            content = read_torch_pickle(_read_pickle(path, archive, files))
            if not isinstance(content, dict):
                raise load_error(f"must contain a dictionary of tensors: {CONVERT}", path=path)

            tensors = {}
            for name, value in content.items():
                if not isinstance(name, str) or not isinstance(value, StoredTensor):
                    problem = "must be a name with a tensor"
                    raise load_error(problem, path=path, tensor=safe_repr(name))

                tensors[name] = _locate(path, name, value, files, file)
            return tensors


def _stored_files(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files by their names in the archive's only folder."""
    files = {info.filename.partition("/")[2]: info for info in archive.infolist()}
    for name, info in files.items():
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise load_error(f"{safe_repr(name)} must not be compressed", path=path)

    order = files.get("byteorder")
    if order is not None and (order.file_size > 16 or archive.read(order) != b"little"):
        raise load_error("its numbers must be little-endian", path=path)

    return files


def _read_pickle(path: Path, archive: zipfile.ZipFile, files: dict[str, zipfile.ZipInfo]) -> bytes:
    info = files.get("data.pkl")
    if info is None:
        raise load_error(f"has no data.pkl, as a file of PyTorch has: {CONVERT}", path=path)

    if info.file_size > _MAX_PICKLE_BYTES:
        raise load_error(f"data.pkl must have at most {_MAX_PICKLE_BYTES:,} bytes", path=path)

    return archive.read(info)


def _locate(
    path: Path,
    name: str,
    tensor: StoredTensor,
    files: dict[str, zipfile.ZipInfo],
    file: io.BufferedReader,
) -> SourceTensor:
    """Return the tensor at its place in the archive."""
    storage, offset, shape = tensor
    item_bytes = DTYPE_BYTES[storage.dtype]
    info = files.get(f"data/{storage.key}")
    if info is None or info.file_size < (offset + math.prod(shape)) * item_bytes:
        raise load_error("its data is missing or truncated", path=path, tensor=name)

    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER_BYTES)
    extra = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    begin = info.header_offset + _LOCAL_HEADER_BYTES + extra + offset * item_bytes
    return SourceTensor(name, path, begin, storage.dtype, shape)
