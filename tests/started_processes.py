"""The processes that workers start."""

from __future__ import annotations

__all__ = ("record_processes",)

from typing import Any

import anyio
import pytest
from anyio.abc import Process

from aiomlc.workers import process as worker_module


def record_processes(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """Return a list to which every process is added that is started from now on."""
    started: list[Process] = []
    original = anyio.open_process

    async def record(*args: Any, **options: Any) -> Process:  # noqa: ANN401
        started.append(await original(*args, **options))
        return started[-1]

    monkeypatch.setattr(worker_module, "open_process", record)
    return started
