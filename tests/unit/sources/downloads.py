"""A download that runs in this process."""

from __future__ import annotations

__all__ = ("FILES", "NAME", "WEIGHTS", "Download", "needed", "read")

from pathlib import Path
from typing import Any

import pytest

from aiomlc.sources.hub import as_failure
from aiomlc.sources.job import DownloadJob, DownloadProgress, Failure
from aiomlc.sources.worker import run_job
from tests.fake_hub import FakeHub

NAME = "ada/pebble"
WEIGHTS = bytes(range(256)) * 2048
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "README.md": b"# A model",
}


class Download:
    """A job, run in this process."""

    def __init__(self, hub: FakeHub, cache: Path) -> None:
        self.hub = hub
        self.cache = cache
        self.progress: list[DownloadProgress] = []

    def run(self, **fields: Any) -> Path:  # noqa: ANN401
        """Return the directory of the snapshot."""
        job = {
            "repository": NAME,
            "revision": "main",
            "file": None,
            "cache": str(self.cache),
            "endpoint": self.hub.endpoint,
            "is_offline": False,
            "is_hasty": False,
        }
        commit = run_job(DownloadJob(**{**job, **fields}), self.progress.append)
        return self.folder / "snapshots" / commit

    def fail(self, **fields: Any) -> Failure:  # noqa: ANN401
        """Return how it fails."""
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever the process reports.
            self.run(**fields)
        failure = as_failure(caught.value) if isinstance(caught.value, Exception) else None
        assert failure is not None
        return failure

    @property
    def folder(self) -> Path:
        return self.cache / "models--ada--pebble"

    @property
    def weight_requests(self) -> list[str | None]:
        """The range of each request for weights."""
        requests = (request for request in self.hub.requests if "safetensors" in request.path)
        return [r.headers.get("Range") for r in requests if r.headers["Host"].startswith("local")]


def read(directory: Path) -> dict[str, bytes]:
    """Return the files of a directory by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def needed() -> dict[str, bytes]:
    """Return the files that are downloaded."""
    return {name: data for name, data in FILES.items() if name != "README.md"}
