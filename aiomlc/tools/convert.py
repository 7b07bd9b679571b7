"""Conversion of a checkpoint to the weights of an MLC directory."""

from __future__ import annotations

__all__ = ("ConvertedWeights", "convert_weights")

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
from anyio import CapacityLimiter, create_task_group, to_thread
from numpy.typing import NDArray

from aiomlc.compiler.parameters import pack_parameters
from aiomlc.compiler.quantization import quantization_named
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.runtime.loading.loaded_model import LoadProgress
from aiomlc.runtime.native.library import load_native
from aiomlc.runtime.native.platform import physical_cores
from aiomlc.tools.activations import Importance, check_calibration, measure_importance
from aiomlc.tools.lora import LoraAdapter, read_lora
from aiomlc.tools.mlc_format import MLCFormat, format_named
from aiomlc.tools.output_files import StagedOutput, check_conflicts, staged_output, write_error
from aiomlc.tools.output_tensors import OutputTensor, output_tensors
from aiomlc.tools.quantizer import RangeError, quantize_rows, store_floats
from aiomlc.tools.row_reader import RowReader
from aiomlc.tools.shards import (
    INDEX_FILE,
    REPLACED_FILES,
    Record,
    Shard,
    lay_out,
    records_of,
    write_index,
)
from aiomlc.tools.source_model import SourceModel, fetch_source, read_source_model
from aiomlc.validation.arguments import check_flag, check_path
from aiomlc.weights.formats.source import Source, SourceTensor, load_error
from aiomlc.weights.plan import make_plan

OnProgress = Callable[[LoadProgress], object]

_BLOCK_ELEMENTS: Final = 1 << 20
_TRANSPOSED_BLOCK_ELEMENTS: Final = 1 << 23  # Each row of the output gets one write per block.
_REPORT_SECONDS: Final = 0.05
_FORMATS: Final = ("auto", "huggingface-safetensor")


@dataclass(frozen=True, slots=True)
class ConvertedWeights:
    """The weights that `convert_weights` has written."""

    path: Path  #: The output directory.
    nbytes: int  #: Of all shards.
    num_parameters: int  #: Elements of the checkpoint.
    bits_per_parameter: float


async def convert_weights(  # noqa: PLR0913 - as MLC LLM's `convert_weight`.
    config: str | PathLike[str],
    output: str | PathLike[str],
    *,
    quantization: str,
    model_type: str = "auto",
    device: str = "auto",
    source: str | PathLike[str] = "auto",
    source_format: str = "auto",
    lora_adapter: str | PathLike[str] | None = None,
    search: bool = False,
    calibration: str | PathLike[str] | None = None,
    force: bool = False,
    num_threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> ConvertedWeights:
    """Write the weights of a Hugging Face checkpoint as those of an MLC directory.

    The files are the same as those of MLC LLM's `convert_weight`, bit by bit: shards of 32 MiB and
    `tensor-cache.json`. They appear in `output` when all of them are complete. The call can be
    cancelled at any time. The memory it needs does not depend on the size of the model.

    Args:
        config: The model: a directory, its `config.json`, or a repository of the Hugging Face hub.
        output: The directory to write to; it is made if it does not exist.
        quantization: MLC LLM's name of the format, such as `q4f16_1`.
        model_type: The architecture; "auto" is that of `config.json`.
        device: "auto" or "cpu".
        source: The directory of the checkpoint; "auto" is that of `config`.
        source_format: "auto" or "huggingface-safetensor".
        lora_adapter: The directory of a LoRA adapter in PEFT's format, which is merged.
        search: Whether to search for the scales of least squared error. The format stays the same,
            but the bits differ from those of MLC LLM.
        calibration: A text, UTF-8 with one passage per line, on which the model is run first. The
            search then weighs errors by the mean squared activations. A LoRA adapter is not applied
            for it.
        force: Whether to replace weights that are in `output`.
        num_threads: Threads of the conversion; by default one per physical core.
        on_progress: Called about 20 times a second, in the event loop.

    Raises:
        BadRequestError: If an argument is invalid, or weights would be replaced without `force`.
        ModelLoadError: If the checkpoint or the adapter is invalid or not supported, or a file
            cannot be written.
    """
    mlc_format = _check_arguments(quantization, device, source_format, search=search, force=force)
    if calibration is not None:
        check_calibration(calibration, source, model_type, search=search)
    check_path("output", output)
    destination = await to_thread.run_sync(_check_output, output, force)
    report = on_progress or _ignore
    directory = await fetch_source(config, report)
    checkpoint = None if source == "auto" else await fetch_source(source, report)
    await to_thread.run_sync(load_native)
    model = await to_thread.run_sync(read_source_model, directory, checkpoint, model_type)
    adapter = None if lora_adapter is None else Path(lora_adapter)
    importance: Importance | None = {} if search else None
    if calibration is not None:
        report(LoadProgress("convert", None, "measuring the activations"))
        importance = await measure_importance(Path(calibration), directory, model)
    plan = await to_thread.run_sync(_plan, model, mlc_format, adapter, importance)
    async with staged_output(destination) as staged:
        threads = num_threads or physical_cores()
        await _write_shards(plan, staged.path, threads, report)
        bits = await to_thread.run_sync(_publish, plan, staged)

    nbytes = sum(shard.nbytes for shard in plan.shards)
    return ConvertedWeights(destination, nbytes, plan.num_parameters, bits)


def _check_output(output: str | PathLike[str], force: bool) -> Path:
    path = Path(output).absolute()
    check_conflicts(path, REPLACED_FILES, force=force)
    return path


@dataclass(frozen=True, slots=True)
class _Plan:
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


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows of a tensor: the work of a thread between two checks for cancellation."""

    tensor: OutputTensor
    records: Sequence[Record]
    begin: int
    end: int


def _check_arguments(
    quantization: str, device: str, source_format: str, *, search: bool, force: bool
) -> MLCFormat:
    check_flag("search", search)
    check_flag("force", force)
    if device not in ("auto", "cpu"):
        raise BadRequestError(f"device must be 'auto' or 'cpu', got {device!r}", param="device")

    if source_format not in _FORMATS:
        raise BadRequestError(
            f"source_format must be one of {', '.join(_FORMATS)}, got {source_format!r}",
            param="source_format",
        )

    mlc_format = format_named(quantization)
    if search and not mlc_format.bits:
        raise BadRequestError(
            f"search needs a quantization with scales, got {quantization!r}", param="search"
        )

    return mlc_format


def _plan(
    model: SourceModel,
    mlc_format: MLCFormat,
    adapter_path: Path | None,
    importance: Importance | None,
) -> _Plan:
    # Checks the names, shapes and dtypes of all tensors.
    make_plan(pack_parameters(model.parameters, quantization_named("q0f32")), model.source)
    tensors = output_tensors(model.parameters, model.config, model.source, mlc_format)
    adapter = None if adapter_path is None else read_lora(adapter_path, model.source)
    if adapter is not None:
        used = frozenset(rows.tensor.name for tensor in tensors for rows in tensor.rows)
        adapter.require_used(used)
    records = [records_of(tensor, mlc_format) for tensor in tensors]
    shards = lay_out(record for group in records for record in group)
    return _Plan(mlc_format, model.source, adapter, tensors, records, shards, importance)


def _blocks(plan: _Plan) -> Iterator[_Block]:
    for tensor, records in zip(plan.tensors, plan.records, strict=True):
        is_split = tensor.is_transposed and tensor.is_quantized
        elements = _TRANSPOSED_BLOCK_ELEMENTS if is_split else _BLOCK_ELEMENTS
        step = max(1, elements // tensor.columns)
        for begin in range(0, tensor.num_rows, step):
            yield _Block(tensor, records, begin, min(tensor.num_rows, begin + step))


async def _write_shards(plan: _Plan, directory: Path, num_threads: int, report: OnProgress) -> None:
    """Write all shards and set their checksums."""
    writer = _ShardWriter(plan, directory)
    limiter = CapacityLimiter(num_threads)
    progress = _Progress(report, plan.num_elements)
    try:
        await to_thread.run_sync(writer.open)
        blocks = _blocks(plan)

        async def convert() -> None:
            for block in blocks:
                await to_thread.run_sync(writer.write, block, limiter=limiter)
                progress.add((block.end - block.begin) * block.tensor.columns)

        await _run_all(convert, num_threads)
        numbers = iter(range(len(plan.shards)))

        async def hash_shards() -> None:
            for number in numbers:
                await to_thread.run_sync(writer.set_checksum, number, limiter=limiter)

        report(LoadProgress("convert", 1.0, "computing the checksums"))
        await _run_all(hash_shards, num_threads)
    finally:
        writer.close()


async def _run_all(work: Callable[[], Any], count: int) -> None:
    """Run `count` tasks; of several errors, raise the first."""
    try:
        async with create_task_group() as tg:
            for _ in range(count):
                tg.start_soon(work)
    except BaseExceptionGroup as group:
        if (errors := group.subgroup(ModelLoadError)) is None:
            raise

        raise _first(errors) from None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(slots=True)
class _Progress:
    """Reports the converted fraction, at most every `_REPORT_SECONDS`."""

    report: OnProgress
    total: int
    done: int = 0
    reported: float = field(default_factory=time.monotonic)

    def add(self, elements: int) -> None:
        self.done += elements
        now = time.monotonic()
        if now - self.reported >= _REPORT_SECONDS or self.done == self.total:
            self.reported = now
            self.report(LoadProgress("convert", self.done / self.total, "converting the weights"))


class _ShardWriter:
    """Converts blocks and writes them to their places. Its methods run in worker threads."""

    def __init__(self, plan: _Plan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._reader = RowReader(plan.adapter)
        self._files = ExitStack()
        self._descriptors: list[int] = []

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

    def write(self, block: _Block) -> None:
        """Convert and write the rows of one block."""
        tensor = block.tensor
        values = self._reader.read(tensor, block.begin, block.end)
        try:
            parts = self._convert(tensor, values)
        except RangeError as error:
            source = self._out_of_range(block)
            raise load_error(str(error), path=source.path, tensor=source.name) from None

        for record, data in zip(block.records, parts, strict=True):
            if tensor.is_quantized and tensor.is_transposed:
                self._write_transposed(record, data, block)
            else:
                self._write(record, block.begin * data.shape[1], data)

    def _convert(
        self, tensor: OutputTensor, values: NDArray[np.float32]
    ) -> Sequence[NDArray[np.uint8]]:
        """Return the bytes of rows for each record of the tensor."""
        if tensor.is_quantized:
            factors = self._plan.importance
            equal = np.ones(tensor.columns, np.float32)
            importance = None if factors is None else factors.get(tensor.name, equal)
            return quantize_rows(values, self._plan.mlc_format, importance)

        return [store_floats(values, tensor.dtype)]

    def _out_of_range(self, block: _Block) -> SourceTensor:
        """Return the tensor of the checkpoint that a value out of range comes from."""
        end = 0
        for rows in block.tensor.rows:
            begin, end = end, end + rows.count
            first, last = max(begin, block.begin), min(end, block.end)
            if first < last:
                try:
                    store_floats(self._reader.read(block.tensor, first, last), block.tensor.dtype)
                except RangeError:
                    return rows.tensor
        raise AssertionError("the block has a value out of range")

    def _write_transposed(self, record: Record, data: NDArray[np.uint8], block: _Block) -> None:
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
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        shard.md5 = digest.hexdigest()


def _publish(plan: _Plan, staged: StagedOutput) -> float:
    try:
        bits = write_index(staged.path, plan.shards, plan.num_parameters)
    except OSError as error:
        raise write_error(staged.path, error) from None

    staged.publish(INDEX_FILE, REPLACED_FILES)
    return bits


def _ignore(progress: LoadProgress) -> None:
    pass
