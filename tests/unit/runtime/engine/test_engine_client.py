"""Tests of an engine's event loops, state and logging."""

from __future__ import annotations

import logging

import anyio
import pytest
from anyio import to_thread
from anyio.from_thread import start_blocking_portal

from aiomlc.errors import EngineClosedError
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.testing import FakeCore
from tests.unit.runtime.engine.engine_helpers import OPTIONS, read

pytestmark = pytest.mark.timeout(20)


def test_engines_on_two_event_loops_are_independent() -> None:
    async def serve(reply: str) -> list[str]:
        async with EngineClient(FakeCore([reply])) as engine:
            return [await read(engine.open_stream(Prompt([1]), OPTIONS)) for _ in range(20)]

    with start_blocking_portal("asyncio") as first, start_blocking_portal("trio") as second:
        futures = [first.start_task_soon(serve, "one"), second.start_task_soon(serve, "two")]
        texts = [future.result(10) for future in futures]

    assert texts == [["one"] * 20, ["two"] * 20]


async def test_call_from_another_event_loop_is_rejected() -> None:
    async with EngineClient(FakeCore()) as engine:

        async def open_stream() -> None:
            engine.open_stream(Prompt([1]), OPTIONS)

        def run_other_loop() -> None:
            anyio.run(open_stream)

        with pytest.raises(EngineClosedError, match="another event loop"):
            await to_thread.run_sync(run_other_loop)


async def test_request_before_the_engine_serves_is_rejected() -> None:
    engine = EngineClient(FakeCore())

    with pytest.raises(EngineClosedError):
        engine.open_stream(Prompt([1]), OPTIONS)


def test_repr_of_an_engine_shows_its_state() -> None:
    engine = EngineClient(FakeCore())

    before = repr(engine)
    engine.task.terminate()

    assert before == "<EngineClient open, 0 requests>"
    assert repr(engine) == "<EngineClient closed, 0 requests>"


async def test_failing_log_filter_affects_no_request(capsys: pytest.CaptureFixture[str]) -> None:
    class FailingFilter(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise ValueError("deliberate filter failure")

    log = logging.getLogger("aiomlc")
    failing_filter, level = FailingFilter(), log.level
    log.addFilter(failing_filter)
    log.setLevel(logging.DEBUG)
    try:
        async with EngineClient(FakeCore(["Hello"])) as engine:
            text = await read(engine.open_stream(Prompt([1]), OPTIONS))
    finally:
        log.removeFilter(failing_filter)
        log.setLevel(level)

    assert text == "Hello"
    assert "deliberate filter failure" in capsys.readouterr().err
