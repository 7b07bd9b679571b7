"""Compilation in a subprocess, which ends with its caller. Never imports tvm."""

from __future__ import annotations

__all__ = ("OnProgress", "compile_model")

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anyio import AsyncFile, open_file, to_thread
from anyio.abc import Process

from aiomlc.cache import LIBRARIES, cache_error, staged_entry
from aiomlc.compiler import cache
from aiomlc.compiler.job import CompiledLibrary, CompileJob, CompileProgress
from aiomlc.compiler.quantization import quantization_of
from aiomlc.devices import parse_device
from aiomlc.errors import CompileError, ModelLoadError
from aiomlc.workers.process import read_messages, worker_process

OnProgress = Callable[[CompileProgress], object]

_STDERR_NAME = "stderr"
_STDERR_LINES = 20


async def compile_model(
    job: CompileJob, *, on_progress: OnProgress | None = None
) -> CompiledLibrary:
    """Return the job's library, compiled now or taken from the cache.

    Raises:
        CompileError: If the compiler fails; the message contains its reason.
        ModelLoadError: If the quantization is not supported, or the cache cannot be written.
        BadRequestError: If there is no such device, or a setting of the cache is invalid.
    """
    parse_device(job.device)
    quantization_of(job.quantization, job.layouts, job.ordered)
    cached = await to_thread.run_sync(cache.find, job)
    if cached is not None:
        return cached

    async with staged_entry(LIBRARIES) as staged:
        await to_thread.run_sync(cache.write_job, staged, job)
        await _run_compiler(staged.path, on_progress)
        return await to_thread.run_sync(cache.publish, staged, job)


async def _run_compiler(staged: Path, on_progress: OnProgress | None) -> None:
    failure: dict[str, Any] = {}

    def receive(values: dict[str, Any]) -> None:
        if "error" in values:
            failure.update(values)
        elif on_progress is not None:
            on_progress(CompileProgress(values["stage"], values["fraction"]))

    async with _compiler(staged) as process:
        await read_messages(process, receive)
        status = await process.wait()

    if status != 0:
        raise await _failure(staged, status, failure)


@asynccontextmanager
async def _compiler(staged: Path) -> AsyncIterator[Process]:
    """Start the compiler's process; it is terminated when the context ends."""
    job = str(staged / cache.JOB_NAME)
    async with (
        await _open_stderr(staged) as stderr,
        worker_process("aiomlc.compiler", job, stderr.wrapped) as process,
    ):
        yield process


async def _open_stderr(staged: Path) -> AsyncFile[bytes]:
    path = staged / _STDERR_NAME
    try:
        return await open_file(path, "wb")
    except OSError as error:
        raise cache_error(path, error) from None


async def _failure(staged: Path, status: int, failure: dict[str, Any]) -> ModelLoadError:
    if number := failure.get("write_errno"):
        return cache_error(staged, OSError(number, os.strerror(number)))

    async with await open_file(staged / _STDERR_NAME, errors="replace") as file:
        lines = (await file.read()).splitlines()
    reason = "{error}: {message}".format(**failure) if failure else f"exit status {status}"
    tail = "\n".join(lines[-_STDERR_LINES:])
    return CompileError(f"the model cannot be compiled: {reason}\n{tail}".rstrip())
