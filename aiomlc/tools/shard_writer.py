"""Conversion of blocks of weights, and the shards that they are written to."""

from __future__ import annotations

__all__ = ("Block", "ShardWriter", "WritePlan", "blocks_of")

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from aiomlc.errors import ModelLoadError
from aiomlc.tools.activations import Importance
from aiomlc.tools.lora import LoraAdapter
from aiomlc.tools.mlc_format import MLCFormat
from aiomlc.tools.output_files import write_error
from aiomlc.tools.output_tensor import OutputTensor
from aiomlc.tools.quantizer import (
    RangeError,
    fp8_scale,
    largest_magnitude,
    quantize_fp8,
    quantize_progressive,
    quantize_rows,
    store_floats,
    store_raw,
)
from aiomlc.tools.row_reader import RowReader
from aiomlc.tools.shards import Record, Shard
from aiomlc.validation.model_files import load_errors
from aiomlc.weights.formats.source import Source, SourceTensor, load_error

_BLOCK_ELEMENTS: Final = 1 << 20
_TRANSPOSED_BLOCK_ELEMENTS: Final = 1 << 23  # Each row of the output gets one write per block.


@dataclass(frozen=True, slots=True)
class WritePlan:
    """All that is known before data is read."""

    mlc_format: MLCFormat
    source: Source
    adapter: LoraAdapter | None
    tensors: Sequence[OutputTensor]
    records: Sequence[Sequence[Record]]  #: Of each tensor.
    shards: Sequence[Shard]
    #: Factors of the squared errors of the search, 1 for other tensors; None without a search.
    importance: Importance | None

    @property
    def num_parameters(self) -> int:
        """The elements of the checkpoint, as MLC LLM counts them."""
        return sum(int(np.prod(t.shape)) for t in self.source.tensors.values())

    @property
    def num_elements(self) -> int:
        """The elements to convert."""
        return sum(tensor.num_rows * tensor.columns for tensor in self.tensors)

    @property
    def num_measured(self) -> int:
        """The elements that are also read for the scale of their tensor."""
        return sum(t.num_rows * t.columns for t in self.tensors if self.is_measured(t))

    def is_measured(self, tensor: OutputTensor) -> bool:
        """Return whether the tensor has one scale, which depends on all of its elements."""
        return tensor.storage == "fp8" and self.mlc_format.has_scale


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of a tensor: the work of a thread between two checks for cancellation."""

    tensor: OutputTensor
    records: Sequence[Record]
    begin: int
    end: int

    @property
    def num_elements(self) -> int:
        """The elements of all rows."""
        return (self.end - self.begin) * self.tensor.columns


def blocks_of(plan: WritePlan, *, only_measured: bool = False) -> Iterator[Block]:
    """Yield the blocks of all tensors, or of those that `ShardWriter.measure` needs."""
    for tensor, records in zip(plan.tensors, plan.records, strict=True):
        if only_measured and not plan.is_measured(tensor):
            continue

        elements = _TRANSPOSED_BLOCK_ELEMENTS if tensor.is_transposed else _BLOCK_ELEMENTS
        step = max(1, elements // tensor.columns)
        for begin in range(0, tensor.num_rows, step):
            yield Block(tensor, records, begin, min(tensor.num_rows, begin + step))


@final
class ShardWriter:
    """Converts blocks and writes them to their places. Its methods run in worker threads."""

    def __init__(self, plan: WritePlan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._reader = RowReader(plan.adapter)
        self._files = ExitStack()
        self._descriptors: list[int] = []
        self._magnitudes: list[tuple[str, np.float16]] = []  # Of blocks.
        self._scales: dict[str, np.float32] = {}

    def open(self) -> None:
        """Open the checkpoint, and create the shards with their sizes."""
        self._reader.open(rows.tensor.path for t in self._plan.tensors for rows in t.rows)
        if self._plan.adapter is not None:
            self._reader.open([self._plan.adapter.path])
        for shard in self._plan.shards:
            path = self._directory / shard.name
            try:
                file = self._files.enter_context(path.open("xb"))
                # Also finds out early that the disk is too small.
                os.posix_fallocate(file.fileno(), 0, shard.nbytes)
            except OSError as error:
                raise write_error(path, error) from None
            self._descriptors.append(file.fileno())

    def close(self) -> None:
        """Close all files."""
        self._reader.close()
        self._files.close()

    def measure(self, block: Block) -> None:
        """Find the largest magnitude of one block."""
        values = self._reader.read(block.tensor, block.begin, block.end)
        try:
            largest = largest_magnitude(values)
        except RangeError as error:
            raise self._range_error(block, error) from None

        self._magnitudes.append((block.tensor.name, largest))

    def write_scales(self) -> None:
        """Write the scales of the tensors of which all blocks are measured."""
        largest: dict[str, np.float16] = {}
        for name, magnitude in self._magnitudes:
            largest[name] = max(magnitude, largest.get(name, magnitude))
        for tensor, records in zip(self._plan.tensors, self._plan.records, strict=True):
            if not self._plan.is_measured(tensor):
                continue

            scale = fp8_scale(largest[tensor.name])
            self._scales[tensor.name] = scale
            # MLC LLM leaves the scale of the inputs uninitialized, until it is calibrated.
            for record, value in zip(records[1:], (scale, np.float32(1)), strict=False):
                self._write(record, 0, store_floats(np.array([[value]]), "float32"))

    def write(self, block: Block) -> None:
        """Convert and write the rows of one block."""
        tensor = block.tensor
        try:
            parts = self._convert(block)
        except RangeError as error:
            raise self._range_error(block, error) from None

        for record, data in zip(block.records, parts, strict=False):
            if tensor.is_transposed:
                self._write_transposed(record, data, block)
            else:
                self._write(record, block.begin * data.shape[1], data)

    def _convert(self, block: Block) -> Sequence[NDArray[np.uint8]]:
        """Return the bytes of rows for each record of the tensor that has rows."""
        tensor, mlc_format = block.tensor, self._plan.mlc_format
        if tensor.dtype == "uint32" or tensor.dtype == "float8_e4m3fn":
            return [self._reader.read_unchanged(tensor, block.begin, block.end).view(np.uint8)]

        values = self._reader.read(tensor, block.begin, block.end)
        if tensor.storage == "fp8":
            assert mlc_format.fp8 is not None
            return [quantize_fp8(values, mlc_format.fp8, self._scales.get(tensor.name))]

        if tensor.storage == "progressive":
            return [quantize_progressive(values)]

        if tensor.storage == "groups":
            factors = self._plan.importance
            equal = np.ones(tensor.columns, np.float32)
            importance = None if factors is None else factors.get(tensor.name, equal)
            return quantize_rows(values, mlc_format, importance)

        return [_store(values, tensor)]

    def _range_error(self, block: Block, error: RangeError) -> ModelLoadError:
        source = self._out_of_range(block)
        return load_error(str(error), path=source.path, tensor=source.name)

    def _out_of_range(self, block: Block) -> SourceTensor:
        """Return the tensor of the checkpoint that a value out of range comes from."""
        tensor = block.tensor
        for source, values in self._reader.read_parts(tensor, block.begin, block.end):
            try:
                _store(values, tensor)
                if tensor.storage == "fp8" and self._plan.mlc_format.fp8 is not None:
                    quantize_fp8(values, self._plan.mlc_format.fp8, self._scales.get(tensor.name))
            except RangeError:
                return source
        raise AssertionError("the block has a value out of range")

    def _write_transposed(self, record: Record, data: NDArray[np.uint8], block: Block) -> None:
        """Write rows as columns."""
        item = 4 if record.dtype == "uint32" else 2
        columns = np.ascontiguousarray(data.view(f"u{item}").T)
        for index, column in enumerate(columns):
            offset = (index * block.tensor.num_rows + block.begin) * item
            self._write(record, offset, column)

    def _write(self, record: Record, offset: int, data: NDArray[Any]) -> None:
        view = data.data.cast("B")
        position = record.offset + offset
        try:
            while view:
                count = os.pwrite(self._descriptors[record.shard], view, position)
                view, position = view[count:], position + count
        except OSError as error:
            path = self._directory / self._plan.shards[record.shard].name
            raise write_error(path, error) from None

    def set_checksum(self, number: int) -> None:
        """Compute the MD5 checksum of a complete shard."""
        shard = self._plan.shards[number]
        path = self._directory / shard.name
        with load_errors(path), path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        shard.md5 = digest.hexdigest()


def _store(values: NDArray[np.float32], tensor: OutputTensor) -> NDArray[np.uint8]:
    """Return the bytes of rows of floats.

    Raises:
        RangeError: If a value is not finite, or too large for the dtype.
    """
    assert tensor.dtype in ("float16", "bfloat16", "float32")
    if tensor.storage in ("raw", "progressive"):
        return store_raw(values)

    return store_floats(values, tensor.dtype)
