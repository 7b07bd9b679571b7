"""The compiler's process."""

from __future__ import annotations

import gc
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import Event, create_task_group, open_process, sleep_forever
from anyio.abc import Process
from anyio.lowlevel import checkpoint

from aiomlc.compiler import compile  # noqa: A004 - a module.
from aiomlc.workers import process


def child_processes() -> set[str]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {child for task in tasks for child in task.read_text().split()}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("num_checkpoints", range(8))
def test_an_event_loop_that_ends_while_the_compiler_starts_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_checkpoints: int, backend: str
) -> None:
    async def compile_for_ever() -> None:
        async with compile._compiler(tmp_path):
            await sleep_forever()

    async def main() -> None:
        is_starting = Event()

        def start(*args: Any, **kwargs: Any) -> Awaitable[Process]:  # noqa: ANN401
            is_starting.set()
            return open_process(*args, **kwargs)

        monkeypatch.setattr(process, "open_process", start)
        async with create_task_group() as tasks:
            tasks.start_soon(compile_for_ever)
            await is_starting.wait()
            for _ in range(num_checkpoints):
                await checkpoint()

            tasks.cancel_scope.cancel()

    before = child_processes()
    anyio.run(main, backend=backend)
    gc.collect()  # asyncio's process that still runs would be reported here.
    assert child_processes() <= before
