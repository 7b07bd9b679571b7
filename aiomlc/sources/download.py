"""Downloads in a subprocess, which is killed when its caller is cancelled."""

from __future__ import annotations

__all__ = ("OnDownload", "download")

import json
import logging
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from typing import IO, Any

from aiomlc.sources.job import DownloadJob, DownloadProgress, Failure
from aiomlc.workers.process import read_messages, worker_process

OnDownload = Callable[[DownloadProgress], object]

_logger = logging.getLogger("aiomlc")


async def download(job: DownloadJob, on_progress: OnDownload) -> str:
    """Complete a snapshot in the hub's cache, and return its commit.

    What a cancelled or killed download leaves is continued by the next one.

    Raises:
        Failure: If that is not possible.
    """
    result: dict[str, Any] = {}

    def receive(message: dict[str, Any]) -> None:
        if progress := message.get("progress"):
            on_progress(DownloadProgress(**progress))
        else:
            result.update(message)

    with tempfile.TemporaryFile() as stderr:
        async with worker_process("aiomlc.sources", json.dumps(asdict(job)), stderr) as process:
            await read_messages(process, receive)
            status = await process.wait()

        output = _read(stderr)

    if output:
        _logger.debug("output of the download of %s:\n%s", job.repository, output)
    if failure := result.get("failure"):
        raise Failure(**failure)

    if status != 0:
        last = output.splitlines()[-1:]
        raise Failure("worker", ": ".join([f"exit status {status}", *last]))

    commit: str = result["commit"]
    return commit


def _read(stderr: IO[bytes]) -> str:
    stderr.seek(0)
    return stderr.read().decode(errors="replace").strip()
