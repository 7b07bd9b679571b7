"""Compilation in a subprocess, which ends with its caller. Never imports tvm."""

from __future__ import annotations

__all__ = ("OnProgress", "compile_model")

import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

from anyio import AsyncFile, CancelScope, move_on_after, open_file, open_process, to_thread
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from aiomlc.cache import LIBRARIES, cache_error, staged_entry
from aiomlc.compiler import cache
from aiomlc.compiler.job import CompiledLibrary, CompileJob, CompileProgress
from aiomlc.compiler.quantization import quantization_named
from aiomlc.errors import CompileError, ModelLoadError

OnProgress = Callable[[CompileProgress], None]

_log = logging.getLogger("aiomlc")
_GRACE_SECONDS = 2.0
_STDERR_NAME = "stderr"
_STDERR_LINES = 20


async def compile_model(
    job: CompileJob, *, on_progress: OnProgress | None = None
) -> CompiledLibrary:
    """Return the job's library, compiled now or taken from the cache.

    Args:
        job: The library to compile.
        on_progress: Called with each stage of a compilation.

    Raises:
        CompileError: If the compiler fails; the message contains its reason.
        ModelLoadError: If the device or the quantization is not supported, or the cache cannot be
            written.
        BadRequestError: If a setting of the cache is invalid.
    """
    if job.device not in ("auto", "cpu"):
        message = f"device must be 'auto' or 'cpu', got {job.device!r}"
        raise ModelLoadError(message, field="device")

    quantization_named(job.quantization)
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
        await _read_messages(process, receive)
        status = await process.wait()

    if status != 0:
        raise await _failure(staged, status, failure)


@asynccontextmanager
async def _compiler(staged: Path) -> AsyncIterator[Process]:
    """Start the compiler's process; it is terminated when the context ends."""
    job = staged / cache.JOB_NAME
    command = [sys.executable, "-P", "-m", "aiomlc.compiler", str(os.getpid()), str(job)]
    # The child imports modules from the same paths in the same order.
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    async with (
        await _open_stderr(staged) as stderr,
        await _start(command, stderr.wrapped, {**os.environ, "PYTHONPATH": paths}) as process,
    ):
        try:
            yield process
        finally:
            await _terminate(process)


async def _start(command: list[str], stderr: IO[bytes], environment: dict[str, str]) -> Process:
    with CancelScope(shield=True):  # asyncio would lose a process whose start is cancelled.
        return await open_process(command, stdin=subprocess.DEVNULL, stderr=stderr, env=environment)

    raise AssertionError("a shielded scope is not cancelled")


async def _open_stderr(staged: Path) -> AsyncFile[bytes]:
    path = staged / _STDERR_NAME
    try:
        return await open_file(path, "wb")
    except OSError as error:
        raise cache_error(path, error) from error


async def _terminate(process: Process) -> None:
    """Terminate a process that still runs; kill it if it does not end in time."""
    if process.returncode is not None:
        return

    with CancelScope(shield=True):
        process.terminate()
        with move_on_after(_GRACE_SECONDS):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _read_messages(process: Process, receive: Callable[[dict[str, Any]], None]) -> None:
    """Call `receive` with each JSON object that the compiler writes, one per line."""
    assert process.stdout is not None
    partial = ""
    async for text in TextReceiveStream(process.stdout, errors="replace"):
        *lines, partial = (partial + text).split("\n")
        for line in lines:
            if line.startswith("{"):
                receive(json.loads(line))
            else:
                _log.debug("compiler output: %s", line)


async def _failure(staged: Path, status: int, failure: dict[str, Any]) -> ModelLoadError:
    if number := failure.get("write_errno"):
        return cache_error(staged, OSError(number, os.strerror(number)))

    async with await open_file(staged / _STDERR_NAME, errors="replace") as file:
        lines = (await file.read()).splitlines()
    reason = "{error}: {message}".format(**failure) if failure else f"exit status {status}"
    tail = "\n".join(lines[-_STDERR_LINES:])
    return CompileError(f"the model cannot be compiled: {reason}\n{tail}".rstrip())
