"""Conversion of a checkpoint to the weights of an MLC directory."""

from __future__ import annotations

__all__ = ("ConvertedWeights", "convert_weights")

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

from anyio import CapacityLimiter, create_task_group, to_thread

from aiomlc.compiler.parameters import pack_parameters
from aiomlc.compiler.quantization import quantization_named
from aiomlc.devices import parse_device
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.models import vision_parameters
from aiomlc.runtime.loading.progress import LoadProgress, ignore_progress
from aiomlc.runtime.native.library import load_native
from aiomlc.runtime.native.platform import physical_cores
from aiomlc.tools.activations import Importance, check_calibration, measure_importance
from aiomlc.tools.lora import read_lora
from aiomlc.tools.mlc_format import MLCFormat, format_named, require_model_type
from aiomlc.tools.output_files import StagedOutput, check_conflicts, staged_output, write_error
from aiomlc.tools.output_tensors import output_tensors
from aiomlc.tools.shard_writer import Block, ShardWriter, WritePlan, blocks_of
from aiomlc.tools.shards import INDEX_FILE, REPLACED_FILES, lay_out, records_of, write_index
from aiomlc.tools.source_model import (
    SourceModel,
    fetch_source,
    read_source_model,
    require_quantization,
)
from aiomlc.validation.arguments import check_flag, check_path
from aiomlc.validation.shortages import names_shortages
from aiomlc.validation.tracebacks import first_leaf
from aiomlc.weights.plan import make_plan

OnProgress = Callable[[LoadProgress], object]

_REPORT_SECONDS: Final = 0.05
_HUGGING_FACE: Final = "huggingface-safetensor"


@dataclass(frozen=True, slots=True)
class ConvertedWeights:
    """The weights that `convert_weights` has written."""

    path: Path  #: The output directory.
    nbytes: int  #: Of all shards.
    num_parameters: int  #: Elements of the checkpoint.
    bits_per_parameter: float


@names_shortages
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
    `tensor-cache.json`. `w4a8`, which MLC LLM does not have, is stored in files of this kind, too:
    they give the same model as the checkpoint, opened in this quantization. The files appear in
    `output` when all of them are complete. The call can be cancelled at any time. The memory it
    needs does not depend on the size of the model.

    Args:
        config: The model: a directory, its `config.json`, or a repository of the Hugging Face hub.
        output: The directory to write to; it is made if it does not exist.
        quantization: MLC LLM's name of the format, such as `q4f16_1`, or `w4a8`. `q4f16_autoawq`
            needs a checkpoint that AutoAWQ quantized, `fp8_e4m3fn_bf16_block_scale` one in FP8 with
            scales of blocks; their quantized weights are kept.
        model_type: The architecture; "auto" is that of `config.json`.
        device: "auto" or "cpu".
        source: The directory of the checkpoint; "auto" is that of `config`.
        source_format: "auto" or "huggingface-safetensor"; "auto" or "awq" for `q4f16_autoawq`.
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
    if lora_adapter is not None and mlc_format.source_method is not None:
        problem = f"lora_adapter cannot be merged into the weights that {quantization} keeps"
        raise BadRequestError(problem, param="lora_adapter")

    if calibration is not None:
        check_calibration(calibration, source, model_type, search=search)
    check_path("output", output)
    destination = await to_thread.run_sync(_check_output, output, force)
    report = on_progress or ignore_progress
    directory = await fetch_source(config, report)
    checkpoint = None if source == "auto" else await fetch_source(source, report)
    await to_thread.run_sync(load_native)
    model = await to_thread.run_sync(read_source_model, directory, checkpoint, model_type)
    require_model_type(mlc_format, model.model_type)
    require_quantization(model.source, mlc_format)
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


def _check_arguments(
    quantization: str, device: str, source_format: str, *, search: bool, force: bool
) -> MLCFormat:
    check_flag("search", search)
    check_flag("force", force)
    if not parse_device(device).startswith(("auto", "cpu")):
        problem = f"device must be auto or cpu, which converts weights, got {device!r}"
        raise BadRequestError(problem, param="device")

    mlc_format = format_named(quantization)
    formats = ("auto", "awq" if mlc_format.source_method == "awq" else _HUGGING_FACE)
    if source_format not in formats:
        raise BadRequestError(
            f"source_format must be one of {', '.join(formats)}, got {source_format!r}",
            param="source_format",
        )

    if search and mlc_format.is_progressive:
        raise BadRequestError(
            f"search must be False for {quantization}, whose levels are always searched for",
            param="search",
        )

    if search and not mlc_format.bits:
        raise BadRequestError(
            f"search needs a quantization with scales of groups, got {quantization!r}",
            param="search",
        )

    return mlc_format


def _plan(
    model: SourceModel,
    mlc_format: MLCFormat,
    adapter_path: Path | None,
    importance: Importance | None,
) -> WritePlan:
    # Checks the names, shapes and dtypes of all tensors.
    make_plan(pack_parameters(model.parameters, quantization_named("q0f32")), model.source)
    if model.vision is not None:
        tower = vision_parameters(model.vision)
        plain = pack_parameters(tower, quantization_named("q0f32"))
        make_plan(plain, model.source.with_flat_columns(tower))
    tensors = output_tensors(model.parameters, model.config, model.source, mlc_format, model.vision)
    adapter = None if adapter_path is None else read_lora(adapter_path, model.source)
    if adapter is not None:
        used = frozenset(rows.tensor.name for tensor in tensors for rows in tensor.rows)
        adapter.require_used(used)
    records = [records_of(tensor, mlc_format) for tensor in tensors]
    shards = lay_out(record for group in records for record in group)
    return WritePlan(mlc_format, model.source, adapter, tensors, records, shards, importance)


async def _write_shards(
    plan: WritePlan, directory: Path, num_threads: int, report: OnProgress
) -> None:
    """Write all shards and set their checksums."""
    writer = ShardWriter(plan, directory)
    limiter = CapacityLimiter(num_threads)
    progress = _Progress(report, plan.num_elements + plan.num_measured)
    try:
        await to_thread.run_sync(writer.open)

        async def run(work: Callable[[Block], None], blocks: Iterable[Block]) -> None:
            remaining = iter(blocks)

            async def work_off() -> None:
                for block in remaining:
                    await to_thread.run_sync(work, block, limiter=limiter)
                    progress.add(block.num_elements)

            await _run_all(work_off, num_threads)

        if plan.num_measured:
            await run(writer.measure, blocks_of(plan, only_measured=True))
            await to_thread.run_sync(writer.write_scales)
        await run(writer.write, blocks_of(plan))
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
        raise first_leaf(group, ModelLoadError) from None


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


def _publish(plan: WritePlan, staged: StagedOutput) -> float:
    try:
        bits = write_index(staged.path, plan.shards, plan.num_parameters)
    except OSError as error:
        raise write_error(staged.path, error) from None

    staged.publish(INDEX_FILE, REPLACED_FILES)
    return bits
