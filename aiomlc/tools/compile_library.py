"""Ahead-of-time compilation of a model's library to a file."""

from __future__ import annotations

__all__ = ("compile_model",)

from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from aiomlc.compiler import CompileJob, CompileProgress, write_library
from aiomlc.compiler import compile_model as compile_job_of
from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.models import MODEL_TYPES, DecoderConfig
from aiomlc.runtime.loading.auto_device import device_of_kind, first_device
from aiomlc.runtime.loading.capacity import sequence_length
from aiomlc.runtime.loading.device import find_target
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import fetch_model
from aiomlc.runtime.loading.prepare import compile_job
from aiomlc.runtime.loading.progress import LoadProgress, compile_progress, ignore_progress
from aiomlc.runtime.native.library import load_native
from aiomlc.validation.arguments import check_flag, check_path
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.shortages import names_shortages

#: The settings of an engine that its library depends on.
OVERRIDES: Final = (
    "context_window_size",
    "sliding_window_size",
    "attention_sink_size",
    "kv_cache_dtype",
    "tensor_parallel_shards",
)
# MLC LLM's overrides, which an engine chooses when it opens the model.
_CHOSEN_LATER: Final = ("prefill_chunk_size", "max_batch_size")
_ONE: Final = ("pipeline_parallel_stages",)
_OPTIMIZATIONS: Final = ("O0", "O1", "O2", "O3")


@names_shortages
async def compile_model(  # noqa: PLR0913 - as MLC LLM's `compile`.
    model: str | PathLike[str],
    output: str | PathLike[str],
    *,
    quantization: str | None = None,
    model_type: str = "auto",
    device: str = "auto",
    arch: str | None = None,
    opt: str = "O2",
    overrides: Mapping[str, Any] | None = None,
    force: bool = False,
    on_progress: Callable[[LoadProgress], object] | None = None,
) -> Path:
    """Compile the library of a model to a file, for the `model_lib` of an engine.

    An engine that gets the file does not compile. The file is valid for the model's configuration,
    these settings, and the installed versions of aiomlc and apache-tvm; an engine refuses it if one
    of them differs.

    Args:
        model: The model: a directory, or a repository of the Hugging Face hub.
        output: The file to write.
        quantization: The quantization of a Hugging Face directory; None is the engine's default.
        model_type: "auto", or the architecture that the model must have.
        device: "auto", "cpu", "cuda" or "opencl".
        arch: An architecture of NVIDIA's GPUs, such as `sm_90a`, to compile for where there is
            none; None is that of the device.
        opt: Any of MLC LLM's levels, from `O0` to `O3`; there is one level here.
        overrides: Settings that the engine will have, too: `sliding_window_size`,
            `attention_sink_size`, `kv_cache_dtype` and, as `max_single_sequence_length`,
            `context_window_size`. MLC LLM's others are accepted, and chosen by the engine.
        force: Whether to replace an existing file.
        on_progress: Called with the progress, in the event loop.

    Returns:
        The path of the file.

    Raises:
        BadRequestError: If an argument is invalid, or the file exists and `force` is False.
        CompileError: If the library cannot be compiled.
        ModelLoadError: If the model cannot be read, or the file not written.
    """
    check_flag("force", force)
    check_path("model", model)
    check_path("output", output)
    if opt not in _OPTIMIZATIONS:
        raise BadRequestError(
            f"opt must be one of {', '.join(_OPTIMIZATIONS)}, got {safe_repr(opt)}", param="opt"
        )

    config = _engine_config(quantization, dict(overrides or {}))
    path = await to_thread.run_sync(_check_output, output, force)
    report = on_progress or ignore_progress
    await to_thread.run_sync(load_native)
    facts = ModelFacts(await fetch_model(model, report), quantization)

    def job_for(name: str) -> CompileJob:
        return compile_job(facts, name, config, find_target(name, arch))

    find_job = job_for if arch is not None else partial(first_device, use=job_for)
    kind = await to_thread.run_sync(lambda: facts.config.kind)
    job = await to_thread.run_sync(find_job, device_of_kind(device, kind))
    if isinstance(job.config, DecoderConfig):
        sequence_length(config, job.config.context_window_size)

    _check_model_type(model_type, job.config.model_type)

    def show(progress: CompileProgress) -> None:
        report(compile_progress(progress))

    library = await compile_job_of(job, on_progress=show)
    await to_thread.run_sync(write_library, library, job, path)
    return path


def _engine_config(quantization: str | None, overrides: dict[str, Any]) -> EngineConfig:
    """Return the configuration of an engine for which the library is."""
    for name, value in overrides.items():
        if name not in (*OVERRIDES, *_CHOSEN_LATER, *_ONE):
            allowed = ", ".join((*OVERRIDES, *_CHOSEN_LATER, *_ONE))
            raise BadRequestError(
                f"overrides must be among {allowed}; got {safe_repr(name)}", param="overrides"
            )

        if name in _ONE and value != 1:
            raise BadRequestError(f"{name} must be 1, got {safe_repr(value)}", param="overrides")

    fields = {name: value for name, value in overrides.items() if name in OVERRIDES}
    if "context_window_size" in fields:
        fields["max_single_sequence_length"] = fields.pop("context_window_size")
    return EngineConfig(quantization=quantization, **fields)


def _check_output(output: str | PathLike[str], force: bool) -> Path:
    path = Path(output).absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise BadRequestError(
            f"output must be a file in an existing directory, got {output}", param="output"
        )

    if path.exists() and not force:
        raise BadRequestError(
            f"{path} already exists; choose another output, or pass force=True (--force)",
            param="output",
        )

    return path


def _check_model_type(requested: str, found: str) -> None:
    if requested not in ("auto", *MODEL_TYPES):
        raise BadRequestError(
            f"model_type must be auto or one of {', '.join(MODEL_TYPES)}, got {requested!r}",
            param="model_type",
        )

    if requested not in ("auto", found):
        raise BadRequestError(
            f"model_type is {requested!r}, but the model's is {found!r}", param="model_type"
        )
