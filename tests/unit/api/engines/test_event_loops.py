"""Tests of `AsyncMLCEngine` with several event loops, threads and processes."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import warnings
from concurrent.futures import CancelledError
from functools import partial
from types import SimpleNamespace

import anyio
import pytest
from anyio import create_task_group, to_thread, wait_all_tasks_blocked
from anyio.from_thread import BlockingPortal

from aiomlc import AsyncMLCEngine, MLCEngine
from aiomlc.errors import (
    BadRequestError,
    EngineClosedError,
    EngineError,
)
from aiomlc.testing import FakeCore, fake_loader
from tests.unit.api.engines.async_engine_helpers import HELLO, GatedLoader, ask

pytestmark = pytest.mark.timeout(20)
DAEMON_THREAD_PROGRAM = """
import atexit, threading, time, anyio

atexit.register(lambda: print(core.is_closed, core.is_running))  # Runs after the library's hook.
from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeCore, fake_loader

core, has_started, engines = FakeCore(), threading.Event(), []

async def main():
    engines.append(AsyncMLCEngine(loader=fake_loader(core)))
    await engines[0].generate("a")
    has_started.set()
    BUSY
    await anyio.sleep_forever()

threading.Thread(target=anyio.run, args=[main], kwargs={"backend": "BACKEND"}, daemon=True).start()
has_started.wait()
END
"""
STOPPED_LOOP_PROGRAM = """
import asyncio, threading
from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeCore, fake_loader

engine = AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"])))
loop = asyncio.new_event_loop()

def run():
    response = loop.run_until_complete(
        engine.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])
    )
    print(response.choices[0].message.content)

RUN
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_event_loop_without_terminate_ends_and_closes_the_core(backend: str) -> None:
    core = FakeCore(["Hi!"])

    async def main() -> None:
        engine = AsyncMLCEngine(loader=fake_loader(core))
        await engine.chat.completions.create(messages=HELLO, stream=True)

    anyio.run(main, backend=backend)

    assert core.is_closed
    assert not core.is_running


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_event_loop_whose_first_request_is_rejected_ends_without_a_warning(backend: str) -> None:
    async def main() -> None:
        engine = AsyncMLCEngine(loader=fake_loader())
        await engine.chat.completions.create(messages=HELLO, chat_template_kwargs={"messages": 1})

    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        with pytest.raises(BadRequestError):
            anyio.run(main, backend=backend)

        gc.collect()

    assert caught_warnings == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_next_event_loop_gets_an_error(backend: str) -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    anyio.run(ask, engine, backend=backend)

    with pytest.raises(EngineClosedError, match="event loop"):
        anyio.run(ask, engine, backend=backend)


@pytest.mark.parametrize(
    "run", ["run()", "thread = threading.Thread(target=run); thread.start(); thread.join()"]
)
def test_an_engine_of_a_stopped_event_loop_does_not_block_the_exit(run: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", STOPPED_LOOP_PROGRAM.replace("RUN", run)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert (result.stdout, result.stderr, result.returncode) == ("Hi!\n", "", 0)


@pytest.mark.parametrize(("busy", "end"), [("", ""), ("time.sleep(1)", "engines[0].terminate()")])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_engine_in_a_daemon_thread_is_closed_before_the_interpreter_exits(
    backend: str, busy: str, end: str
) -> None:
    program = DAEMON_THREAD_PROGRAM.replace("BACKEND", backend)
    program = program.replace("BUSY", busy).replace("END", end)
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
    )

    assert (result.stdout, result.stderr, result.returncode) == ("True False\n", "", 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_an_event_loop_cannot_open_an_engine_that_another_one_is_opening(
    backend: str,
) -> None:
    loader = GatedLoader(FakeCore(["Hi!"]))
    engine = AsyncMLCEngine(loader=loader)
    texts: list[str | None] = []

    async def open_engine() -> None:
        texts.append(await ask(engine))

    async with create_task_group() as tasks:
        tasks.start_soon(open_engine)
        await wait_all_tasks_blocked()
        with pytest.raises(EngineClosedError, match="another event loop"):
            await to_thread.run_sync(partial(anyio.run, ask, engine, backend=backend))

        loader.gate.set()

    engine.terminate()
    assert texts == ["Hi!"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_stream_cannot_be_read_in_another_event_loop(
    backend: str,
) -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        with pytest.raises(EngineClosedError, match="another event loop"):
            await to_thread.run_sync(partial(anyio.run, stream.__anext__, backend=backend))

        core.allow(1000)
        assert await ask(engine) == "Hi!"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_next_event_loop_may_reload_the_model(backend: str) -> None:
    engine = AsyncMLCEngine(loader=fake_loader(replies=["Hi!"]))

    async def reload_and_ask() -> str | None:
        await engine.reload()
        return await ask(engine)

    assert [anyio.run(reload_and_ask, backend=name) for name in (backend, "asyncio")] == ["Hi!"] * 2


async def test_other_threads_call_the_engine_through_the_portal() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine:
        replies = [await to_thread.run_sync(engine.portal.call, ask, engine) for _ in range(2)]

    assert replies == ["Hi!", "Hi!"]
    with pytest.raises(EngineClosedError, match="portal"):
        _ = engine.portal


async def test_an_engine_without_a_scope_has_no_portal() -> None:
    engine = AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"])))
    await ask(engine)

    with pytest.raises(EngineClosedError, match="portal"):
        _ = engine.portal

    engine.terminate()


async def test_leaving_the_scope_cancels_the_portal_calls_of_threads() -> None:
    loader = fake_loader(FakeCore())
    started, cancelled = anyio.Event(), threading.Event()

    async def wait_forever() -> None:
        started.set()
        await anyio.sleep_forever()

    def work(portal: BlockingPortal) -> None:
        with pytest.raises(CancelledError):
            portal.call(wait_forever)

        cancelled.set()

    async with create_task_group() as tasks, AsyncMLCEngine(loader=loader) as engine:
        tasks.start_soon(to_thread.run_sync, work, engine.portal)
        await started.wait()

    assert cancelled.is_set()


@pytest.mark.parametrize("engine_class", [AsyncMLCEngine, MLCEngine])
@pytest.mark.parametrize("module", ["threading", "queue"])
def test_threads_that_gevent_has_replaced_are_refused(
    monkeypatch: pytest.MonkeyPatch, engine_class: type, module: str
) -> None:
    gevent = SimpleNamespace(is_module_patched=module.__eq__)
    monkeypatch.setitem(sys.modules, "gevent.monkey", gevent)

    with pytest.raises(EngineError, match="gevent has replaced Python's threads"):
        engine_class()


def test_gevent_may_replace_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    gevent = SimpleNamespace(is_module_patched="socket".__eq__)
    monkeypatch.setitem(sys.modules, "gevent.monkey", gevent)

    with MLCEngine(loader=fake_loader(FakeCore(["Hi"]))) as engine:
        assert engine.completions.create(prompt="a").choices[0].text == "Hi"
