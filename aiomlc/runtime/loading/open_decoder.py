"""Open a decoder: compile and convert it unless cached, map the weights and start the core."""

from __future__ import annotations

__all__ = (
    "OnProgress",
    "OpenedModel",
    "PreparedModel",
    "check_tensors",
    "compile_job",
    "compile_progress",
    "load_decoder",
    "load_model",
    "open_native",
    "prepare_model",
)

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from aiomlc.compiler import CompileProgress, compile_model, read_library
from aiomlc.compiler.job import CompiledLibrary, CompileJob
from aiomlc.compiler.parameters import pack_parameters
from aiomlc.config import EngineConfig, Mode
from aiomlc.errors import BadRequestError
from aiomlc.models import (
    EncoderConfig,
    ModelConfig,
    decoder_parameters,
    encoder_parameters,
    read_description,
)
from aiomlc.runtime.engine.prefix_piece import KVFormat
from aiomlc.runtime.engine.prefix_transfer import PrefixTransfers
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.loading.capacity import ServingLimits
from aiomlc.runtime.loading.loaded_model import LoadedModel, LoadProgress
from aiomlc.runtime.loading.memory_plan import InsufficientMemoryError, MemoryPlan, plan_memory
from aiomlc.runtime.loading.model_directory import (
    ModelDirectory,
    fetch_draft,
    fetch_model,
    find_draft,
)
from aiomlc.runtime.loading.quantization import find_quantization
from aiomlc.runtime.loading.text_files import TextFiles, read_tokenizer
from aiomlc.runtime.native.core import EngineOptions, NativeCore
from aiomlc.runtime.native.faults import Faults
from aiomlc.runtime.native.grammar_compiler import NativeGrammarCompiler
from aiomlc.runtime.native.library import load_native
from aiomlc.runtime.native.model import ModelShape, NativeModel
from aiomlc.runtime.native.platform import check_platform, physical_cores
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.model_files import load_errors
from aiomlc.weights import PackedWeights, map_weights, prepare_weights
from aiomlc.weights.formats.directory import read_source
from aiomlc.weights.plan import make_plan

if TYPE_CHECKING:
    from aiomlc.weights import Progress

OnProgress = Callable[[LoadProgress], None]

_logger = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A native model, its memory plan and its draft model."""

    native: NativeModel
    plan: MemoryPlan
    vocab_size: int
    kv_format: KVFormat
    draft: NativeModel | None = None
    draft_directory: ModelDirectory | None = None


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A compiled library and packed weights, ready to be opened with `num_threads`."""

    library: CompiledLibrary
    weights: PackedWeights
    num_threads: int


async def load_model(
    model: str | PathLike[str] | None,
    *,
    device: str,
    mode: Mode,
    engine_config: EngineConfig,
    on_progress: OnProgress | None,
    faults: Faults | None = None,
) -> LoadedModel:
    """Open a model directory for serving; None is the bundled model.

    `faults` injects faults into the model, for tests.

    Raises:
        ModelLoadError: If a file, tensor or field is missing or invalid.
        InsufficientMemoryError: If the memory does not hold the model, or an allocation fails.
        CompileError: If the library cannot be compiled.
    """
    report = on_progress or _ignore
    directory = await fetch_model(model, report)
    return await load_decoder(
        directory, device=device, mode=mode, config=engine_config, report=report, faults=faults
    )


async def load_decoder(
    directory: ModelDirectory,
    *,
    device: str,
    mode: Mode,
    config: EngineConfig,
    report: OnProgress,
    faults: Faults | None = None,
) -> LoadedModel:
    """Open the directory of a decoder, as `load_model`."""
    report(LoadProgress("load", None, "reading the tokenizer"))
    # First, so that an invalid file is refused before the weights are converted.
    files = await to_thread.run_sync(TextFiles.read, directory)
    opened = await open_native(directory, device, mode, config, report, faults)
    return await to_thread.run_sync(_assemble, directory, files, opened, config)


async def open_native(
    directory: ModelDirectory,
    device: str,
    mode: Mode,
    config: EngineConfig,
    report: OnProgress,
    faults: Faults | None = None,
) -> OpenedModel:
    """Plan the memory, compile and convert the model unless cached, and open it.

    Raises:
        ModelLoadError: If a file, tensor or field is missing or invalid.
        InsufficientMemoryError: If the plan does not fit, which is checked first, or an allocation
            fails.
        CompileError: If the library cannot be compiled.
    """
    await to_thread.run_sync(check_tensors, directory, config.quantization)
    await fetch_draft(config, report)
    plan = await to_thread.run_sync(plan_memory, directory, mode, config)
    _logger.log(logging.INFO if config.verbose else logging.DEBUG, "memory plan\n%s", plan)
    prepared = await prepare_model(directory, device, config, report)
    draft_directory = find_draft(directory, config)
    draft: PreparedModel | None = None
    if draft_directory is not None:
        draft_config = dataclasses.replace(
            config,
            quantization=None,
            model_lib=None,
            sliding_window_size=None,
            attention_sink_size=None,
        )
        await to_thread.run_sync(check_tensors, draft_directory, None)
        draft = await prepare_model(draft_directory, device, draft_config, report)
        _check_vocabulary(prepared, draft)

    report(LoadProgress("load", None, "opening the model"))
    try:
        return await to_thread.run_sync(
            _open_models, prepared, draft, draft_directory, plan, faults
        )
    except MemoryError as error:
        raise InsufficientMemoryError(f"{error}\n{plan}", plan=plan) from None


async def prepare_model(
    directory: ModelDirectory, device: str, config: EngineConfig, report: OnProgress
) -> PreparedModel:
    """Compile the library and convert the weights, unless they are cached."""
    await to_thread.run_sync(load_native)
    await to_thread.run_sync(check_platform)
    job = await to_thread.run_sync(compile_job, directory, device, config)
    library = await _prepare_library(job, config.model_lib, report)
    threads = config.num_threads or physical_cores()
    weights = await prepare_weights(
        directory.path,
        library.metadata["params"],
        quantization=library.metadata["quantization"],
        num_threads=threads,
        on_progress=lambda done: report(_convert_progress(done)),
    )
    return PreparedModel(library, weights, threads)


async def _prepare_library(
    job: CompileJob, model_lib: str | None, report: OnProgress
) -> CompiledLibrary:
    if model_lib is not None:
        return await to_thread.run_sync(read_library, Path(model_lib), job)

    return await compile_model(job, on_progress=lambda done: report(compile_progress(done)))


def check_tensors(directory: ModelDirectory, requested: str | None) -> None:
    """Require the tensors that the config describes, before anything is planned or compiled for it.

    Raises:
        ModelLoadError: If a tensor is missing or has the wrong shape or dtype.
    """
    description = read_description(directory.path)
    config = description.config
    quantization = find_quantization(directory, description, requested)
    with load_errors(directory.path):
        parameters = (
            encoder_parameters(config)
            if isinstance(config, EncoderConfig)
            else decoder_parameters(config)
        )
        make_plan(pack_parameters(parameters, quantization), read_source(directory.path))


def compile_job(directory: ModelDirectory, device: str, config: EngineConfig) -> CompileJob:
    """Return the library that an engine with this configuration needs."""
    description = read_description(directory.path)
    quantization = find_quantization(directory, description, config.quantization)
    return CompileJob(
        config=_with_window(description.config, config),
        quantization=quantization.name,
        layouts=quantization.layouts,
        ordered=tuple(sorted(quantization.ordered)),
        device=device,
        kv_cache_dtype=config.kv_cache_dtype,
    )


def _with_window(model: ModelConfig, config: EngineConfig) -> ModelConfig:
    size, sinks = config.sliding_window_size or 0, config.attention_sink_size or 0
    if isinstance(model, EncoderConfig):
        if size > 0 or sinks > 0:
            raise BadRequestError(
                "sliding_window_size is not supported by encoders", param="sliding_window_size"
            )

        if config.kv_cache_dtype != "auto":
            raise BadRequestError(
                "kv_cache_dtype is not supported by encoders",
                param="kv_cache_dtype",
            )

        return model

    if sinks > 0 and size <= 0 and (size < 0 or not model.windows):
        raise BadRequestError(
            f"attention_sink_size must be 0 without a sliding window, got {sinks}",
            param="attention_sink_size",
        )

    model = model.with_window(config.sliding_window_size, config.attention_sink_size)
    return model.within(config.max_single_sequence_length)


def _shape(metadata: Any, limits: ServingLimits) -> ModelShape:  # noqa: ANN401 - JSON.
    return ModelShape.of(
        metadata,
        context_window=limits.context_window,
        max_batch_size=limits.max_batch_size,
        prefill_chunk_size=limits.prefill_chunk_size,
        max_total_tokens=limits.max_total_tokens,
    )


def _check_vocabulary(model: PreparedModel, draft: PreparedModel) -> None:
    size, draft_size = (prepared.library.metadata["vocab_size"] for prepared in (model, draft))
    if size != draft_size:
        raise BadRequestError(
            f"additional_models: the vocabulary of the draft model must have {size} tokens, "
            f"got {draft_size}",
            param="additional_models",
        )


def _open_models(
    model: PreparedModel,
    draft: PreparedModel | None,
    draft_directory: ModelDirectory | None,
    plan: MemoryPlan,
    faults: Faults | None,
) -> OpenedModel:
    limits = plan.limits
    native = _open(model, limits, faults)
    vocab_size = model.library.metadata["vocab_size"]
    kv_format = _kv_format(model, native.shape)
    if draft is None:
        return OpenedModel(native, plan, vocab_size, kv_format)

    context_window = min(limits.context_window, draft.library.metadata["context_window_size"])
    draft_limits = dataclasses.replace(limits, context_window=context_window)
    try:
        native_draft = _open(draft, draft_limits, None if faults is None else faults.draft)
    except BaseException:
        del native  # The error's traceback would keep the model alive.
        raise

    return OpenedModel(native, plan, vocab_size, kv_format, native_draft, draft_directory)


def _kv_format(prepared: PreparedModel, shape: ModelShape) -> KVFormat:
    library = prepared.library
    return KVFormat(
        kv_dtype=shape.kv_dtype,
        num_layers=shape.num_layers,
        num_key_value_heads=shape.num_kv_heads,
        row_size=shape.kv_row_size,
        quantization=library.metadata["quantization"],
        weights=prepared.weights.path.parent.name,  # The cache's directory is named by the key.
        library=library.key,
    )


def _open(
    prepared: PreparedModel, limits: ServingLimits, faults: Faults | None = None
) -> NativeModel:
    weights, library = prepared.weights, prepared.library
    params = map_weights(weights.path, weights.nbytes, weights.params)
    shape = _shape(library.metadata, limits)
    return NativeModel(library, params, shape, prepared.num_threads, faults)


def _assemble(
    directory: ModelDirectory, files: TextFiles, opened: OpenedModel, config: EngineConfig
) -> LoadedModel:
    if opened.draft_directory is not None:
        _check_tokenizer(files.tokenizer, opened.draft_directory)

    limits = opened.plan.limits
    core = NativeCore(
        opened.native,
        files.token_bytes,
        EngineOptions(
            step_token_budget=limits.step_token_budget,
            max_recycling_sequences=limits.max_recycling_sequences,
            max_queue_size=limits.max_queue_size,
            separate_prefill=config.prefill_mode == "chunked",
            speculative_mode=config.speculative_mode,
            draft_length=config.spec_draft_length,
        ),
        draft=opened.draft,
    )
    return LoadedModel(
        core=core,
        tokenizer=files.tokenizer,
        chat_template=files.template,
        model_name=directory.name,
        context_window=limits.context_window,
        vocab_size=opened.vocab_size,
        adds_special_tokens=files.adds_special_tokens,
        default_options=files.default_options,
        stop_token_ids=files.stop_token_ids,
        chat_stop_token_ids=files.chat_stop_token_ids,
        tool_format=files.formats.tool_format,
        reasoning_format=files.formats.reasoning_format,
        memory_plan=opened.plan,
        prefix_transfers=PrefixTransfers(core, opened.kv_format),
        # Without a reference to `opened`, which would keep the native model alive.
        grammars=GrammarCache(
            partial(NativeGrammarCompiler, files.tokenizer, opened.vocab_size, files.all_stop_ids)
        ),
    )


def _check_tokenizer(tokenizer: Tokenizer, draft_directory: ModelDirectory) -> None:
    """Require that both models have the same vocabulary, because drafts are token ids."""
    draft_tokenizer = read_tokenizer(draft_directory)
    if draft_tokenizer.token_bytes() != tokenizer.token_bytes():
        raise BadRequestError(
            f"additional_models: the tokens of {draft_directory.path} differ from the model's",
            param="additional_models",
        )


def compile_progress(progress: CompileProgress) -> LoadProgress:
    """Return the progress of a compilation as that of loading."""
    return LoadProgress("compile", progress.fraction, f"compiling the model: {progress.stage}")


def _convert_progress(progress: Progress) -> LoadProgress:
    fraction = progress.done_bytes / progress.total_bytes if progress.total_bytes else 1.0
    return LoadProgress("convert", fraction, "packing the weights")


def _ignore(progress: LoadProgress) -> None:
    pass
