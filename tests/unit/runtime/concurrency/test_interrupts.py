"""Protection against KeyboardInterrupt."""

from __future__ import annotations

import asyncio  # noqa: TID251 - an interrupt without `asyncio.run` is tested.
import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import pytest
import trio

import aiomlc
from aiomlc import AsyncMLCEngine, RequestFailedError
from aiomlc.api.session.lifecycle import EngineLifecycle
from aiomlc.api.streams.portal import EnginePortal
from aiomlc.api.transcription import TranscriptionStream
from aiomlc.runtime.concurrency.interrupts import UninterruptibleScope, deferred_interrupts
from aiomlc.runtime.concurrency.loop_thread import Call
from aiomlc.runtime.engine.core_protocol import Record
from aiomlc.runtime.engine.stream import DeltaStream
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_deferred_interrupt_is_raised_at_the_end_of_the_scope() -> None:
    steps = []

    def work() -> None:
        with deferred_interrupts():
            interrupt()
            steps.append("after the interrupt")

        steps.append("after the scope")

    with pytest.raises(KeyboardInterrupt):
        work()

    assert steps == ["after the interrupt"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_scope_in_another_thread_defers_nothing() -> None:
    handlers = []

    def work() -> None:
        with deferred_interrupts():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)  # noqa: TID251 - not a thread of an event loop.
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


FINALIZED = (Call, DeltaStream, EngineLifecycle, EnginePortal, TranscriptionStream)


def test_all_finalized_classes_are_tested() -> None:
    package = Path(aiomlc.__file__).parent
    texts = [path.read_text() for path in package.rglob("*.py") if path.parent.name != "ray"]

    assert sum(text.count("def __del__(") for text in texts) == len(FINALIZED)


@pytest.mark.parametrize("finalized", FINALIZED)
def test_an_object_whose_constructor_was_interrupted_is_dropped_silently(
    finalized: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)

    object.__new__(finalized)
    gc.collect()

    assert ignored == []


@pytest.fixture(params=[signal.SIG_IGN, signal.SIG_DFL])
def other_handler(request: pytest.FixtureRequest) -> Iterator[signal.Handlers]:
    before = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, before)


def test_a_handler_that_is_not_python_stays(other_handler: signal.Handlers) -> None:
    with deferred_interrupts():
        assert signal.getsignal(signal.SIGINT) is other_handler


class ProtectedScope(UninterruptibleScope):
    """A scope that records whether it is protected while it is entered and left."""

    def __init__(self) -> None:
        self.is_protected: list[bool] = []

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        self.is_protected.append(trio.lowlevel.currently_ki_protected())
        yield self
        self.is_protected.append(trio.lowlevel.currently_ki_protected())


def test_trio_protects_the_entry_and_exit_of_a_scope_but_not_its_body() -> None:
    async def main() -> list[bool]:
        async with ProtectedScope() as scope:
            scope.is_protected.append(trio.lowlevel.currently_ki_protected())

        return scope.is_protected

    assert trio.run(main) == [True, False, True]


async def test_a_scope_cannot_be_entered_twice() -> None:
    async with ProtectedScope() as scope:
        with pytest.raises(RuntimeError, match="ProtectedScope has already been entered"):
            async with scope:
                pass

    async with scope:
        pass


def test_trio_protects_the_tasks_of_an_engine() -> None:
    is_protected: set[bool] = set()

    class WatchedCore(FakeCore):  # type: ignore[misc]
        def drain(self) -> list[Record]:
            is_protected.add(trio.lowlevel.currently_ki_protected())
            return super().drain()

    async def main() -> None:
        async with AsyncMLCEngine(loader=fake_loader(WatchedCore())) as engine:
            await engine.chat.completions.create(messages=HELLO)

        engine = AsyncMLCEngine(loader=fake_loader(WatchedCore()))
        await engine.chat.completions.create(messages=HELLO)
        await engine.unload()

    trio.run(main)
    assert is_protected == {True}


class InterruptedCore(FakeCore):  # type: ignore[misc]
    """A core that is interrupted when its records are drained for the first time."""

    num_interrupts = 1

    def drain(self) -> list[Record]:
        records = super().drain()
        if records and self.num_interrupts:
            self.num_interrupts -= 1
            interrupt()

        return records


@pytest.mark.parametrize("in_scope", [True, False])
def test_an_interrupted_delivery_ends_the_loop_but_no_task(in_scope: bool) -> None:
    async def ask(engine: AsyncMLCEngine) -> None:
        with pytest.raises(RequestFailedError, match="interrupted the delivery"):
            await engine.chat.completions.create(messages=HELLO)

        completion = await engine.chat.completions.create(messages=HELLO)
        assert completion.choices[0].message.content == "Hello!"

    async def main() -> None:
        engine = AsyncMLCEngine(loader=fake_loader(InterruptedCore()))
        if in_scope:
            async with engine:
                await ask(engine)
        else:
            await ask(engine)
            await engine.unload()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: pytest.fail(str(context)))
    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)

    assert not task.done()
    loop.run_until_complete(task)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def test_an_interrupt_of_trio_reaches_the_main_task_alone() -> None:
    async def main() -> None:
        async with AsyncMLCEngine(loader=fake_loader(InterruptedCore())) as engine:
            await engine.chat.completions.create(messages=HELLO)
            await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
