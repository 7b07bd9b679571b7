"""A subprocess that runs a module of the library and writes JSON lines; it ends with its caller."""

from __future__ import annotations

__all__ = ("read_messages", "worker_process")

import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, Final

from anyio import CancelScope, move_on_after, open_process
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

GRACE_SECONDS: Final = 2.0

_log = logging.getLogger("aiomlc")


@asynccontextmanager
async def worker_process(module: str, argument: str, stderr: IO[bytes]) -> AsyncIterator[Process]:
    """Run a module as `python -m module PARENT ARGUMENT`; it is terminated when the scope ends."""
    command = [sys.executable, "-P", "-m", module, str(os.getpid()), argument]
    # The child imports modules from the same paths in the same order.
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    async with await _start(command, stderr, {**os.environ, "PYTHONPATH": paths}) as process:
        try:
            yield process
        finally:
            await _terminate(process)


async def read_messages(process: Process, receive: Callable[[dict[str, Any]], None]) -> None:
    """Call `receive` with each JSON object that the process writes, one per line."""
    assert process.stdout is not None
    partial = ""
    async for text in TextReceiveStream(process.stdout, errors="replace"):
        *lines, partial = (partial + text).split("\n")
        for line in lines:
            if line.startswith("{"):
                receive(json.loads(line))
            else:
                _log.debug("output of a subprocess: %s", line)


async def _start(command: list[str], stderr: IO[bytes], environment: dict[str, str]) -> Process:
    with CancelScope(shield=True):  # asyncio would lose a process whose start is cancelled.
        return await open_process(command, stdin=subprocess.DEVNULL, stderr=stderr, env=environment)

    raise AssertionError("a shielded scope is not cancelled")


async def _terminate(process: Process) -> None:
    """Terminate a process that still runs; kill it if it does not end in time."""
    if process.returncode is not None:
        return

    with CancelScope(shield=True):
        process.terminate()
        with move_on_after(GRACE_SECONDS):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
