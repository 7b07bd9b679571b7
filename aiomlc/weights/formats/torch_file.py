"""The tensors of a file that `torch.save` wrote, found without running what the file says.

Such a file is a ZIP archive without compression: a pickle that describes the tensors, and a file
for the data of each. A pickle is a program, so only the instructions and names that a dictionary of
tensors consists of are accepted. Format: `torch/serialization.py` of PyTorch 1.6 and later.
"""

from __future__ import annotations

__all__ = ("read_torch_file",)

import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard, final

from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.model_files import open_file
from aiomlc.weights.formats.source import DTYPE_BYTES, SourceTensor, is_size, load_error

_MAX_PICKLE_BYTES: Final = 1 << 20
_LOCAL_HEADER_BYTES: Final = 30  # Of ZIP, before the name and the extra field.
_CONVERT: Final = "write it as safetensors, with save_file of the package safetensors"
_STORAGES: Final = {
    "FloatStorage": "f32",
    "HalfStorage": "f16",
    "BFloat16Storage": "bf16",
}
_INSTRUCTIONS: Final = frozenset(
    (
        *("PROTO", "STOP", "MARK", "GLOBAL", "REDUCE", "BUILD", "BINPERSID"),
        *("BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS"),
        *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"),
    )
)


class _Storage(NamedTuple):
    """The data of one or more tensors."""

    key: str  #: The name of its file.
    dtype: str


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int  #: Numbers of the storage before it.
    shape: tuple[int, ...]


def read_torch_file(path: Path) -> dict[str, SourceTensor]:
    """Return the tensors of a dictionary of tensors.

    Raises:
        ModelLoadError: If the file is not such a dictionary in PyTorch's ZIP format, or contains
            anything else.
    """
    with open_file(path) as file:
        if not zipfile.is_zipfile(file):
            raise load_error(f"is not a file of PyTorch 1.6 or later: {_CONVERT}", path=path)

        with zipfile.ZipFile(file) as archive:
            files = _stored_files(path, archive)
            content = _unpickle(_read_pickle(path, archive, files))
            if not isinstance(content, dict):
                raise load_error(f"must contain a dictionary of tensors: {_CONVERT}", path=path)

            tensors = {}
            for name, value in content.items():
                if not isinstance(name, str) or not isinstance(value, _Tensor):
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
        raise load_error(f"has no data.pkl, as a file of PyTorch has: {_CONVERT}", path=path)

    if info.file_size > _MAX_PICKLE_BYTES:
        raise load_error(f"data.pkl must have at most {_MAX_PICKLE_BYTES:,} bytes", path=path)

    return archive.read(info)


def _unpickle(data: bytes) -> object:
    for instruction, argument, _ in pickletools.genops(data):
        if instruction.name not in _INSTRUCTIONS:
            raise ValueError(f"data.pkl has the instruction {instruction.name}: {_CONVERT}")

        # Memory is reserved for all indices up to the largest one.
        if instruction.name == "LONG_BINPUT" and argument is not None and argument > len(data):
            raise ValueError("data.pkl is damaged")

    return _Unpickler(io.BytesIO(data)).load()


@final
class _Unpickler(pickle.Unpickler):
    """Builds dictionaries of tensors, from nothing but the names that these need."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as the base class.
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]

        match module, name:
            case "collections", "OrderedDict":
                return _DictBuilder()
            case "torch._utils", "_rebuild_tensor_v2":
                return _TensorBuilder()
            case "torch._utils", "_rebuild_parameter":
                return _ParameterBuilder()
            case _:
                raise ValueError(
                    f"data.pkl refers to {safe_repr(f'{module}.{name}')}, which is no part of a "
                    f"dictionary of float tensors: {_CONVERT}"
                )

    def persistent_load(self, pid: object) -> _Storage:
        match pid:
            case ("storage", str(dtype), str(key), _, _) if dtype in DTYPE_BYTES:
                return _Storage(key, dtype)
            case _:
                raise ValueError("data.pkl refers to data that is not a storage of floats")


# Objects without attributes, because a pickle can set those of what it names.
@final
class _DictBuilder:
    """Makes empty dictionaries only: copies of large ones would take memory without bounds."""

    __slots__ = ()

    def __call__(self) -> OrderedDict[str, object]:
        return OrderedDict()


@final
class _TensorBuilder:
    __slots__ = ()

    def __call__(self, storage: object, offset: object, *rest: object) -> _Tensor:
        shape, strides = rest[:2] if len(rest) >= 2 else (None, None)
        if not isinstance(storage, _Storage) or not is_size(offset) or not _are_sizes(shape):
            raise ValueError("data.pkl has a malformed tensor")

        if strides != tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape))):
            raise ValueError(f"data.pkl has a tensor whose rows are not contiguous: {_CONVERT}")

        return _Tensor(storage, offset, shape)


@final
class _ParameterBuilder:
    __slots__ = ()

    def __call__(self, tensor: object, *_: object) -> object:
        return tensor


def _are_sizes(value: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(value, tuple) and len(value) <= 8 and all(is_size(item) for item in value)


def _locate(
    path: Path,
    name: str,
    tensor: _Tensor,
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
