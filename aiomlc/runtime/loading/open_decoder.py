"""Open a decoder: plan its memory, prepare it, map the weights and start the core."""

from __future__ import annotations

__all__ = ("OpenedModel", "load_decoder", "load_model", "open_native")

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any

from anyio import to_thread

from aiomlc.config import EngineConfig, Mode
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.prefix_piece import KVFormat
from aiomlc.runtime.engine.prefix_transfer import PrefixTransfers
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.loading.auto_device import open_on_device
from aiomlc.runtime.loading.capacity import ServingLimits
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.loading.memory_plan import InsufficientMemoryError, MemoryPlan, plan_engine
from aiomlc.runtime.loading.model_directory import (
    ModelDirectory,
    fetch_draft,
    fetch_model,
    find_draft,
)
from aiomlc.runtime.loading.open_tower import OpenedTower, open_tower
from aiomlc.runtime.loading.prepare import PreparedModel, prepare_model
from aiomlc.runtime.loading.progress import LoadProgress, OnProgress, ignore_progress
from aiomlc.runtime.loading.text_files import TextFiles, read_tokenizer
from aiomlc.runtime.native.core import EngineOptions, NativeCore
from aiomlc.runtime.native.faults import Faults
from aiomlc.runtime.native.grammar_compiler import NativeGrammarCompiler
from aiomlc.runtime.native.model import ModelShape, NativeModel
from aiomlc.runtime.native.processors import memory_nodes, on_processors, place_shards
from aiomlc.runtime.native.self_test import require_equal_rows
from aiomlc.runtime.native.shard_processes import ShardProcesses
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.weights import map_weights

_logger = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A native model, its memory plan and its draft model."""

    native: NativeModel
    plan: MemoryPlan
    vocab_size: int
    kv_format: KVFormat | None  #: None if it cannot import keys and values.
    draft: NativeModel | None = None
    draft_directory: ModelDirectory | None = None


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
    report = on_progress or ignore_progress
    facts = ModelFacts(
        await fetch_model(model, report),
        engine_config.quantization,
        vision_quantization=engine_config.vision_quantization,
    )
    return await load_decoder(
        facts, device=device, mode=mode, config=engine_config, report=report, faults=faults
    )


async def load_decoder(
    facts: ModelFacts,
    *,
    device: str,
    mode: Mode,
    config: EngineConfig,
    report: OnProgress,
    faults: Faults | None = None,
) -> LoadedModel:
    """Open a decoder, as `load_model`."""
    report(LoadProgress("load", None, "reading the tokenizer"))
    # First, so that an invalid file is refused before the weights are converted.
    files = await to_thread.run_sync(TextFiles.read, facts)
    tower = await open_tower(facts, files.tokenizer, config, report)
    opened = await open_native(facts, device, mode, config, report, faults)
    return await to_thread.run_sync(_assemble, facts.directory, files, opened, config, tower)


async def open_native(
    facts: ModelFacts,
    device: str,
    mode: Mode,
    config: EngineConfig,
    report: OnProgress,
    faults: Faults | None = None,
) -> OpenedModel:
    """Plan the memory, compile and convert the model unless cached, and open it.

    For `auto`, that is done on the selected device, or on the CPU if that fails.

    Raises:
        ModelLoadError: If a file, tensor or field is missing or invalid.
        InsufficientMemoryError: If the plan does not fit, which is checked first, or an allocation
            fails.
        CompileError: If the library cannot be compiled.
    """
    await to_thread.run_sync(facts.check_tensors)
    await fetch_draft(config, report)
    draft = await to_thread.run_sync(_draft_facts, facts, config)

    async def open_on(name: str) -> OpenedModel:
        return await _open_on_device(facts, draft, name, mode, config, report, faults)

    return await open_on_device(device, open_on)


async def _open_on_device(  # noqa: PLR0913 - those of `open_native`, and the draft.
    facts: ModelFacts,
    draft: ModelFacts | None,
    device: str,
    mode: Mode,
    config: EngineConfig,
    report: OnProgress,
    faults: Faults | None,
) -> OpenedModel:
    models = [facts] if draft is None else [facts, draft]
    plan = await to_thread.run_sync(plan_engine, models, mode, config, device)
    _logger.log(logging.INFO if config.verbose else logging.DEBUG, "memory plan\n%s", plan)
    if plan.drops_experts:
        _logger.warning(
            "%s needs %.1f GiB, and %.1f GiB are free: experts are read from disk when a token "
            "needs them, which is slow unless tokens need the same ones",
            *(facts.directory.name, plan.total_bytes / 2**30, plan.budget.nbytes / 2**30),
        )
    prepared = await prepare_model(facts, device, config, report)
    prepared_draft: PreparedModel | None = None
    if draft is not None:
        await to_thread.run_sync(draft.check_tensors)
        prepared_draft = await prepare_model(draft, device, _draft_config(config), report)
        _check_vocabulary(prepared, prepared_draft)

    report(LoadProgress("load", None, "opening the model"))
    try:
        return await to_thread.run_sync(_open_models, prepared, prepared_draft, draft, plan, faults)
    except MemoryError as error:
        raise InsufficientMemoryError(f"{error}\n{plan}", plan=plan) from None


def _draft_facts(facts: ModelFacts, config: EngineConfig) -> ModelFacts | None:
    directory = find_draft(facts.directory, config)
    return None if directory is None else ModelFacts(directory)


def _draft_config(config: EngineConfig) -> EngineConfig:
    """Return the configuration of the draft model, which differs in what concerns its library."""
    return dataclasses.replace(
        config,
        quantization=None,
        model_lib=None,
        tensor_parallel_shards=1,  # Its passes are short; the other shards wait meanwhile.
        sliding_window_size=None,
        attention_sink_size=None,
    )


def _shape(metadata: Any, limits: ServingLimits) -> ModelShape:  # noqa: ANN401 - JSON.
    return ModelShape.of(
        metadata,
        context_window=limits.context_window,
        max_batch_size=limits.max_batch_size,
        prefill_chunk_size=limits.prefill_chunk_size,
        max_total_tokens=limits.max_total_tokens,
        num_slots=limits.num_slots,
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
    draft_facts: ModelFacts | None,
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

    directory = None if draft_facts is None else draft_facts.directory
    return OpenedModel(native, plan, vocab_size, kv_format, native_draft, directory)


def _kv_format(prepared: PreparedModel, shape: ModelShape) -> KVFormat | None:
    library = prepared.library
    if not library.metadata["imports_prefixes"]:
        return None

    return KVFormat(
        kv_dtype=library.metadata["kv_dtype"],
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
    device = prepared.device
    if prepared.other_weights:
        return _open_shards(prepared, params, shape, faults)

    model = NativeModel(library, params, shape, prepared.num_threads, faults, device)
    if not device.is_trusted:
        require_equal_rows(model, device)
    return model


def _open_shards(
    prepared: PreparedModel, params: Sequence[object], shape: ModelShape, faults: Faults | None
) -> NativeModel:
    """Open a model whose other shards are in processes of their own, all at the same time."""
    others, threads = prepared.other_weights, prepared.num_threads
    processors = place_shards(1 + len(others), memory_nodes())
    with (
        ShardProcesses(others, prepared.library, shape, threads, processors) as shards,
        on_processors(shards.processors),
    ):
        model = NativeModel(prepared.library, params, shape, threads, faults)
        model.lead(shards)
        return model


def _assemble(
    directory: ModelDirectory,
    files: TextFiles,
    opened: OpenedModel,
    config: EngineConfig,
    tower: OpenedTower,
) -> LoadedModel:
    if opened.draft_directory is not None:
        _check_tokenizer(files.tokenizer, opened.draft_directory)

    limits, kv_format = opened.plan.limits, opened.kv_format
    core = NativeCore(
        opened.native,
        files.token_bytes,
        EngineOptions(
            step_token_budget=limits.step_token_budget,
            idle_step_token_budget=limits.idle_step_token_budget,
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
        suppress_tokens=files.suppress_tokens,
        tool_format=files.formats.tool_format,
        reasoning_format=files.formats.reasoning_format,
        channel_format=files.formats.channel_format,
        vision=tower.vision,
        audio=tower.audio,
        audio_rows_per_second=tower.audio_rows_per_second,
        memory_plan=opened.plan,
        prefix_transfers=None if kv_format is None else PrefixTransfers(core, kv_format),
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
