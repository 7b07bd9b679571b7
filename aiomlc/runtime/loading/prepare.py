"""The stages library and weights: a model is compiled and its weights are packed, unless cached."""

from __future__ import annotations

__all__ = ("PreparedModel", "compile_job", "prepare_model")

from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from aiomlc.compiler import backend_of, compile_model, read_library
from aiomlc.compiler.job import CompiledLibrary, CompileJob
from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.models import AnyConfig, DecoderConfig, TowerConfig
from aiomlc.runtime.loading.capacity import check_encoder
from aiomlc.runtime.loading.device import find_device
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.progress import OnProgress, compile_progress, convert_progress
from aiomlc.runtime.loading.shards import divided_model
from aiomlc.runtime.native.device import CompileTarget, NativeDevice
from aiomlc.runtime.native.library import load_native
from aiomlc.runtime.native.platform import check_platform, physical_cores
from aiomlc.weights import PackedWeights, prepare_weights


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A compiled library and packed weights, ready to be opened with `num_threads`."""

    library: CompiledLibrary
    weights: PackedWeights
    num_threads: int  #: Of each shard.
    other_weights: tuple[PackedWeights, ...]  #: Of the shards after the first.
    device: NativeDevice  #: With the kernels of the library.


async def prepare_model(
    facts: ModelFacts, device: str, config: EngineConfig, report: OnProgress
) -> PreparedModel:
    """Compile the library and convert the weights, unless they are cached.

    Raises:
        ModelLoadError: If a file, tensor or field is missing or invalid.
        CompileError: If the library cannot be compiled.
    """
    await to_thread.run_sync(load_native)
    await to_thread.run_sync(check_platform)
    found = await to_thread.run_sync(find_device, device)
    job = await to_thread.run_sync(compile_job, facts, device, config, found)
    library = await _prepare_library(job, config.model_lib, report)
    found = await found.prepare(library)
    threads = config.num_threads or physical_cores()
    source = await to_thread.run_sync(lambda: facts.source)
    num_shards = library.metadata.get("tensor_parallel_shards", 1)  # Encoders have none.
    weights, *others = [
        await prepare_weights(
            source,
            library.metadata["params"],
            quantization=library.metadata["quantization"],
            num_threads=threads,
            on_progress=lambda done: report(convert_progress(done)),
            shard=shard,
        )
        for shard in range(num_shards)
    ]
    shard_threads = max(1, threads // num_shards)
    return PreparedModel(library, weights, shard_threads, tuple(others), found)


async def _prepare_library(
    job: CompileJob, model_lib: str | None, report: OnProgress
) -> CompiledLibrary:
    if model_lib is not None:
        return await to_thread.run_sync(read_library, Path(model_lib), job)

    return await compile_model(job, on_progress=lambda done: report(compile_progress(done)))


def compile_job(
    facts: ModelFacts, device: str, config: EngineConfig, target: CompileTarget
) -> CompileJob:
    """Return the library that an engine with this configuration needs.

    `target` is the device itself, or what stands for one that is absent.

    Raises:
        BadRequestError: If the device does not support the model or a setting.
    """
    quantization = facts.quantization
    model, backend = _with_window(facts, config), backend_of(device)
    if isinstance(model, DecoderConfig):
        model = divided_model(facts, model, config)
        if model.num_shards > 1 and not backend.supports_shards:
            raise BadRequestError(
                f"device {backend.name!r}: tensor_parallel_shards must be 1, got "
                f"{model.num_shards}; use device 'cpu'",
                param="tensor_parallel_shards",
            )

    backend.check(model, quantization, config.kv_cache_dtype)
    problem = backend.draft_problem(model)
    if config.speculative_mode != "disable" and problem is not None:
        raise BadRequestError(
            f"device {backend.name!r}: speculative_mode must be 'disable', got "
            f"{config.speculative_mode!r}: {problem}; use device 'cpu'",
            param="speculative_mode",
        )

    if isinstance(model, DecoderConfig):
        target.check(backend.kv_cache(model, quantization, config.kv_cache_dtype).dtype)
    return CompileJob(
        config=model,
        quantization=quantization.name,
        layouts=quantization.layouts,
        ordered=tuple(sorted(quantization.ordered)),
        device=backend.name,
        target=target.target,
        kv_cache_dtype=config.kv_cache_dtype,
    )


def _with_window(facts: ModelFacts, config: EngineConfig) -> AnyConfig:
    model = facts.config
    if isinstance(model, TowerConfig):
        return model

    if not isinstance(model, DecoderConfig):
        check_encoder(config, model.max_tokens, has_tower=facts.tower is not None)
        return model

    size, sinks = config.sliding_window_size or 0, config.attention_sink_size or 0
    if sinks > 0 and size <= 0 and (size < 0 or not model.windows):
        raise BadRequestError(
            f"attention_sink_size must be 0 without a sliding window, got {sinks}",
            param="attention_sink_size",
        )

    model = model.with_window(config.sliding_window_size, config.attention_sink_size)
    return model.within(config.max_single_sequence_length)
