"""The streams of an engine's events."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from anyio import (
    BusyResourceError,
    ClosedResourceError,
    EndOfStream,
    create_task_group,
    fail_after,
    to_thread,
    wait_all_tasks_blocked,
)
from anyio.abc import ObjectReceiveStream

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    EngineDeadError,
    EngineEvent,
    EngineEventStream,
    EngineOverloadedError,
    ModelLoadError,
)
from aiomlc.runtime.engine.events import EventHub
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader
from tests.unit.runtime.engine.engine_helpers import LONG_REPLY, wait_until_free

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]


@asynccontextmanager
async def serve(core: FakeCore) -> AsyncIterator[tuple[AsyncMLCEngine, EngineEventStream]]:
    """Open an engine on a core; its events so far have been read."""
    engine = AsyncMLCEngine(loader=fake_loader(core))
    events = engine.events()
    async with engine:
        for _ in range(2):
            await events.receive()

        yield engine, events


async def types(events: EngineEventStream) -> list[str]:
    with fail_after(5):
        return [event.type async for event in events]


async def test_events_of_an_engine_in_the_order_of_its_life() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    events = engine.events()
    async with engine:
        await engine.drain()
        engine.resume()
        engine.resume()
        await engine.reset()
        await engine.unload()
        await engine.reload("elsewhere")

    assert await types(events) == [
        *("loading", "loaded", "draining", "drained", "resumed", "reset"),
        *("unloaded", "loading", "loaded", "terminated"),
    ]


async def test_an_event_has_the_model_and_the_time() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    events = engine.events()
    async with engine:
        loading, loaded = [await events.receive() for _ in range(2)]

    assert isinstance(events, ObjectReceiveStream)
    assert loaded.model is not None
    assert loaded == EngineEvent("loaded", loaded.time, loaded.model, None)
    assert 0 < loading.time <= loaded.time


async def test_an_encoder_has_events() -> None:
    engine = AsyncMLCEngine(loader=fake_loader(FakeEncoder()))
    events = engine.events()
    async with engine:
        pass

    assert await types(events) == ["loading", "loaded", "terminated"]


async def test_a_model_that_cannot_be_loaded_is_an_event(tmp_path: Path) -> None:
    engine = AsyncMLCEngine(tmp_path)
    events = engine.events()
    with pytest.raises(ModelLoadError) as caught:
        await engine.chat.completions.create(messages=HELLO)

    engine.terminate()
    failed = [event async for event in events][1]
    assert (failed.type, failed.model) == ("load_failed", str(tmp_path))
    assert failed.error == str(caught.value)


async def test_overload_is_one_event_until_a_request_is_accepted() -> None:
    core = FakeCore([LONG_REPLY], max_live=1)
    async with serve(core) as (engine, events):
        for _ in range(2):
            async with engine.generate("a"):  # Lives until its reader has caught up.
                for _ in range(3):
                    with pytest.raises(EngineOverloadedError):
                        await engine.generate("b")

            await wait_until_free(core)

    assert await types(events) == ["overloaded", "overloaded", "terminated"]


async def test_death_is_an_event_with_the_reason() -> None:
    core = FakeCore(["abc"], dies_at_step=1)
    with pytest.raises(EngineDeadError):
        async with serve(core) as (engine, events):
            await engine.chat.completions.create(messages=HELLO)

    dead, terminated = [event async for event in events]
    assert dead.type == "dead"
    assert dead.error
    assert terminated.type == "terminated"


async def test_a_waiting_reader_gets_an_event_from_another_thread() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    events = engine.events()
    read: list[str] = []

    async def watch() -> None:
        read.extend(await types(events))

    async with create_task_group() as tasks:
        tasks.start_soon(watch)
        await wait_all_tasks_blocked()
        await to_thread.run_sync(engine.terminate)

    assert read == ["terminated"]


async def test_a_waiting_reader_does_not_keep_the_engine_alive() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    events = engine.events()
    async with create_task_group() as tasks:
        tasks.start_soon(types, events)
        await wait_all_tasks_blocked()
        del engine
        gc.collect()


@contextmanager
def hub_with(buffer_size: int) -> Iterator[tuple[EventHub, EngineEventStream]]:
    hub = EventHub()
    yield hub, hub.subscribe(buffer_size)
    hub.close()


async def test_the_oldest_events_are_dropped_and_counted() -> None:
    with hub_with(2) as (hub, events):
        for _ in range(4):
            hub.emit("draining")
            hub.emit("resumed")

        assert events.statistics() == (2, 2, 1, 1, 0, 0)
        assert events.num_dropped == 6

    assert await types(events) == ["resumed", "terminated"]
    assert "ended" in repr(events)


async def test_a_closed_stream_gets_no_events() -> None:
    with hub_with(2) as (hub, events):
        async with create_task_group() as tasks:
            tasks.start_soon(types, events)
            await wait_all_tasks_blocked()
            with pytest.raises(BusyResourceError):
                await events.receive()

            assert events.statistics().tasks_waiting_receive == 1
            await events.aclose()

        hub.emit("reset")
        with pytest.raises(ClosedResourceError):
            await events.receive()


async def test_streams_after_the_end_are_empty() -> None:
    hub = EventHub()
    hub.close()
    hub.close()
    hub.emit("reset")
    with pytest.raises(EndOfStream):
        await hub.subscribe(1).receive()


@pytest.mark.parametrize("size", [0, -1, True, 1.5, None, "x"])
def test_the_buffer_size_is_a_positive_integer(size: object) -> None:
    with pytest.raises(BadRequestError, match="buffer_size must be a positive integer"):
        AsyncMLCEngine().events(buffer_size=size)  # type: ignore[arg-type]


def test_an_engine_without_readers_is_freed_at_the_end_of_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It sets the globals of modules to None before it frees the last objects.
    monkeypatch.setattr("aiomlc.runtime.engine.events.time", None)
    hub = EventHub()
    hub.close()

    monkeypatch.undo()
    hub.emit("terminated")  # Closed: no error, and nobody to send it to.
