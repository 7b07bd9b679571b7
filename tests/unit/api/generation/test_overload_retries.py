"""Requests of a batch that wait for a full queue."""

from __future__ import annotations

import pytest
from anyio import Event, create_task_group, fail_after
from anyio.lowlevel import checkpoint

from aiomlc.api.generation.overload_retries import OverloadRetries
from aiomlc.errors import EngineOverloadedError


async def test_a_request_that_an_idle_engine_rejects_fails() -> None:
    async def reject() -> None:
        await checkpoint()
        raise EngineOverloadedError("full")

    with fail_after(5), pytest.raises(EngineOverloadedError):
        await OverloadRetries().run(reject, lambda: True)


async def test_a_request_is_not_alone_if_another_starts_while_it_is_prepared() -> None:
    retries = OverloadRetries()
    is_prepared, other_started = Event(), Event()
    num_attempts = 0

    async def submit() -> int:
        nonlocal num_attempts
        num_attempts += 1
        if num_attempts == 1:
            raise EngineOverloadedError("full")

        if num_attempts == 2:
            is_prepared.set()
            await other_started.wait()
            raise EngineOverloadedError("full")

        return num_attempts

    async def other() -> None:
        other_started.set()
        await checkpoint()

    with fail_after(5):
        async with create_task_group() as tasks:

            async def start_other() -> None:
                await is_prepared.wait()
                await retries.run(other, lambda: True)

            tasks.start_soon(start_other)
            assert await retries.run(submit, lambda: True) == 3
