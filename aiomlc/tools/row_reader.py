"""Rows of the tensors to write, from a checkpoint."""

from __future__ import annotations

__all__ = ("RowReader",)

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from aiomlc.tools.lora import LoraAdapter
from aiomlc.tools.output_tensor import OutputTensor, Rows
from aiomlc.validation.model_files import open_file
from aiomlc.weights.formats.source import DTYPE_BYTES, SourceTensor, load_error

_NUMPY_DTYPES: Final = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.uint16,
    "i32": np.uint32,
    "u32": np.uint32,
    "f8e4m3": np.uint8,
}


@final
class RowReader:
    """Reads rows from open files. Thread-safe.

    Files are read with `pread` and not mapped: one that shrinks is an error and not a SIGBUS.
    """

    def __init__(self, adapter: LoraAdapter | None) -> None:
        self._files = ExitStack()
        self._descriptors: dict[Path, int] = {}
        self._adapter = adapter

    def open(self, paths: Iterable[Path]) -> None:
        """Open files.

        Raises:
            ModelLoadError: If one cannot be opened.
        """
        for path in paths:
            if path not in self._descriptors:
                file = self._files.enter_context(open_file(path))
                self._descriptors[path] = file.fileno()

    def close(self) -> None:
        """Close all files."""
        self._files.close()

    def read(self, tensor: OutputTensor, begin: int, end: int) -> NDArray[np.float32]:
        """Return rows `[begin, end)` of a tensor of floats to write: merged with the adapter, and
        with the weight offset.

        Raises:
            ModelLoadError: If they cannot be read.
        """
        return _joined(tensor, [part for _, part in self.read_parts(tensor, begin, end)])

    def read_parts(
        self, tensor: OutputTensor, begin: int, end: int
    ) -> Iterator[tuple[SourceTensor, NDArray[np.float32]]]:
        """Yield what `read` joins, each with the tensor of the checkpoint that has it.

        Raises:
            ModelLoadError: If it cannot be read.
        """
        for rows in _parts(tensor, begin, end):
            values = self._read(rows, _columns(tensor, rows))
            if tensor.weight_offset:
                values += np.float32(tensor.weight_offset)
            yield rows.tensor, values

    def read_unchanged(self, tensor: OutputTensor, begin: int, end: int) -> NDArray[Any]:
        """Return rows `[begin, end)` of a tensor to write whose elements are not floats.

        Raises:
            ModelLoadError: If they cannot be read.
        """
        parts = []
        for rows in _parts(tensor, begin, end):
            columns = _columns(tensor, rows)
            stored = self._read_stored(rows.tensor, rows, columns)
            parts.append(stored.reshape(rows.count, columns))
        return _joined(tensor, parts)

    def _read(self, rows: Rows, columns: int) -> NDArray[np.float32]:
        tensor = rows.tensor
        if self._adapter is not None:
            tensor = self._adapter.saved.get(tensor.name, tensor)
        values = _widened(self._read_stored(tensor, rows, columns), tensor.dtype)
        values = values.reshape(rows.count, columns)
        if self._adapter is None:
            return values

        return self._adapter.merge(rows.tensor.name, rows.first, values)

    def _read_stored(self, tensor: SourceTensor, rows: Rows, columns: int) -> NDArray[Any]:
        stored = np.empty(rows.count * columns, _NUMPY_DTYPES[tensor.dtype])
        view = stored.data.cast("B")
        position = tensor.offset + rows.first * columns * DTYPE_BYTES[tensor.dtype]
        try:
            while view:
                count = os.preadv(self._descriptors[tensor.path], [view], position)
                if count == 0:
                    raise load_error("the file is truncated", path=tensor.path, tensor=tensor.name)

                view, position = view[count:], position + count
        except OSError as error:
            raise load_error(
                f"cannot read: {error}", path=tensor.path, tensor=tensor.name
            ) from None
        return stored


def _parts(tensor: OutputTensor, begin: int, end: int) -> Iterator[Rows]:
    """Yield the rows of the checkpoint that rows `[begin, end)` of a tensor consist of."""
    first = 0
    for rows in tensor.rows:
        start, stop = max(begin, first), min(end, first + rows.count)
        if start < stop:
            yield Rows(rows.tensor, rows.first + start - first, stop - start)
        if not tensor.is_side_by_side:
            first += rows.count


def _columns(tensor: OutputTensor, rows: Rows) -> int:
    return rows.tensor.shape[-1] if tensor.is_side_by_side else tensor.columns


def _joined(tensor: OutputTensor, parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, int(tensor.is_side_by_side))


def _widened(stored: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    if dtype == "bf16":
        bits = stored.astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32)

    return stored.astype(np.float32, copy=False)
