"""Opening, using and ending an AsyncMLCEngine, in both of its forms."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import warnings
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import create_task_group, to_thread, wait_all_tasks_blocked
from anyio.from_thread import BlockingPortal
from anyio.lowlevel import checkpoint

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.errors import (
    BadRequestError,
    EngineClosedError,
    EngineDeadError,
    EngineError,
    ModelLoadError,
)
from aiomlc.runtime.loading.loaded_model import LoadedModel, LoadProgress
from aiomlc.testing import FakeCore, fake_loader, fake_model

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
DAEMON = """
import atexit, threading, anyio

atexit.register(lambda: print(core.is_closed, core.is_running))  # Called after the library's own.
from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeCore, fake_loader

core, has_begun = FakeCore(), threading.Event()

async def main():
    engine = AsyncMLCEngine(loader=fake_loader(core))
    await engine.generate("a")
    has_begun.set()
    await anyio.sleep_forever()

threading.Thread(target=anyio.run, args=[main], kwargs={"backend": "BACKEND"}, daemon=True).start()
has_begun.wait()
"""
STOPPED = """
import asyncio, threading
from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeCore, fake_loader

engine = AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"])))
loop = asyncio.new_event_loop()

def run():
    answer = loop.run_until_complete(
        engine.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])
    )
    print(answer.choices[0].message.content)

RUN
"""


class GatedLoader:
    """A loader that waits until it is told to go on, and counts its calls."""

    def __init__(self, core: FakeCore) -> None:
        self.core = core
        self.calls = 0
        self.gate = anyio.Event()

    async def __call__(self, model: object, **_: object) -> LoadedModel:
        self.calls += 1
        await self.gate.wait()
        return fake_model(self.core)


async def ask(engine: AsyncMLCEngine) -> str | None:
    answer = await engine.chat.completions.create(messages=HELLO)
    return answer.choices[0].message.content


async def test_the_scope_opens_the_model_and_frees_it() -> None:
    core = FakeCore(["Hi!"])

    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        text = await ask(engine)

    assert text == "Hi!"
    assert core.is_closed
    assert not core.is_running
    with pytest.raises(EngineClosedError):
        await ask(engine)


async def test_without_a_scope_the_first_request_opens_and_terminate_ends() -> None:
    core = FakeCore(["Hi!"])
    engine = AsyncMLCEngine(loader=fake_loader(core))

    texts = [await ask(engine), await ask(engine)]
    engine.terminate()
    engine.terminate()

    assert texts == ["Hi!", "Hi!"]
    assert core.is_closed
    assert not core.is_running
    with pytest.raises(EngineClosedError):
        await ask(engine)


async def test_terminate_with_requests_in_flight_ends_them() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    engine = AsyncMLCEngine(loader=fake_loader(core))

    async def reader() -> None:
        with pytest.raises(EngineClosedError):
            await ask(engine)

    async with create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(reader)

        while len(core.prompts) < 3:
            await wait_all_tasks_blocked()

        engine.terminate()

    assert core.statistics().free_pages == core.statistics().total_pages


async def test_terminate_from_another_thread_ends_the_requests() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    engine = AsyncMLCEngine(loader=fake_loader(core))

    stream = await engine.chat.completions.create(messages=HELLO, stream=True)
    await to_thread.run_sync(engine.terminate)

    with pytest.raises(EngineClosedError):
        await stream.__anext__()


async def test_terminate_before_the_first_request_closes_for_good() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    engine.terminate()

    with pytest.raises(EngineClosedError):
        await ask(engine)

    with pytest.raises(EngineClosedError):
        async with engine:
            pass


async def test_first_requests_at_once_load_the_model_once() -> None:
    loader = GatedLoader(FakeCore(["Hi!"]))
    engine = AsyncMLCEngine(loader=loader)
    texts: list[str | None] = []

    async def reader() -> None:
        texts.append(await ask(engine))

    async with create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(reader)

        await wait_all_tasks_blocked()
        loader.gate.set()

    engine.terminate()

    assert texts == ["Hi!"] * 5
    assert loader.calls == 1


async def test_when_the_loading_caller_is_cancelled_the_next_one_loads() -> None:
    loader = GatedLoader(FakeCore(["Hi!"]))
    engine = AsyncMLCEngine(loader=loader)
    texts: list[str | None] = []

    async def reader() -> None:
        texts.append(await ask(engine))

    async with create_task_group() as others:
        async with create_task_group() as first:
            first.start_soon(ask, engine)
            await wait_all_tasks_blocked()
            others.start_soon(reader)
            await wait_all_tasks_blocked()
            first.cancel_scope.cancel()

        loader.gate.set()

    engine.terminate()

    assert texts == ["Hi!"]
    assert loader.calls == 2


async def test_terminate_while_loading_closes_what_was_loaded() -> None:
    loader = GatedLoader(FakeCore())
    engine = AsyncMLCEngine(loader=loader)

    async def reader() -> None:
        with pytest.raises(EngineClosedError):
            await ask(engine)

    async with create_task_group() as tasks:
        tasks.start_soon(reader)
        await wait_all_tasks_blocked()
        engine.terminate()
        loader.gate.set()

    assert loader.core.is_closed


async def test_a_model_that_cannot_be_opened_is_one_error_in_both_forms() -> None:
    async def load(model: object, **_: object) -> LoadedModel:
        raise ModelLoadError("no such tensor", path="model.safetensors", tensor="x")

    with pytest.raises(ModelLoadError, match="no such tensor"):
        async with AsyncMLCEngine(loader=load):
            pass

    with pytest.raises(ModelLoadError, match="no such tensor") as caught:
        await ask(AsyncMLCEngine(loader=load))

    assert (caught.value.path, caught.value.tensor) == ("model.safetensors", "x")


async def test_the_engines_death_leaves_the_scope_alone() -> None:
    core = FakeCore(["x" * 100], dies_at_step=2)

    with pytest.raises(EngineDeadError):
        async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
            await ask(engine)


async def test_an_open_engine_cannot_be_opened_again() -> None:
    core = FakeCore()
    engine = AsyncMLCEngine(loader=fake_loader(core))
    await ask(engine)

    with pytest.raises(EngineError, match="already open"):
        async with engine:
            pass

    assert not core.is_closed
    engine.terminate()


async def test_an_engine_whose_scope_was_left_is_closed_and_not_open() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    async with engine:
        pass

    with pytest.raises(EngineClosedError, match="was terminated"):
        async with engine:
            pass


async def test_an_engine_that_is_dropped_stops_its_core() -> None:
    core = FakeCore(["Hi!"])
    engine = AsyncMLCEngine(loader=fake_loader(core))
    await ask(engine)

    del engine
    gc.collect()

    assert await to_thread.run_sync(core.wait_until_stopped)


async def test_a_stream_keeps_a_dropped_engine_alive() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    engine = AsyncMLCEngine(loader=fake_loader(core))
    stream = await engine.chat.completions.create(messages=HELLO, stream=True)

    del engine
    gc.collect()
    core.allow(10)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert text == "Hi!"


async def test_statistics_and_metrics_count() -> None:
    core = FakeCore(["Hi!"])

    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        await ask(engine)
        statistics = engine.statistics()
        metrics = await engine.metrics()

    assert (statistics.num_running, statistics.completion_tokens) == (0, 3)
    assert metrics["prompt_tokens_sum"] == 55
    assert metrics["completion_tokens_sum"] == 3
    assert metrics["decode_tokens_per_s"] == 3 / metrics["engine_decode_time_sum"]
    assert "\naiomlc_completion_tokens_total 3\n" in metrics.prometheus_text()
    assert "# TYPE aiomlc_completion_tokens_total counter\n" in metrics.prometheus_text()


async def test_statistics_of_a_closed_engine_are_refused() -> None:
    with pytest.raises(EngineClosedError):
        AsyncMLCEngine(loader=fake_loader()).statistics()


async def test_progress_is_reported() -> None:
    seen: list[LoadProgress] = []

    async with AsyncMLCEngine(loader=fake_loader(), on_progress=seen.append):
        await checkpoint()

    assert [progress.stage for progress in seen] == ["load"]


async def test_the_loader_gets_what_the_constructor_was_given(tmp_path: Path) -> None:
    given: dict[str, Any] = {}

    async def load(model: object, **options: object) -> LoadedModel:
        given.update(options, model=model)
        return fake_model(FakeCore())

    config = EngineConfig(num_threads=3)
    async with AsyncMLCEngine(tmp_path, "cpu", mode="server", engine_config=config, loader=load):
        await checkpoint()

    assert (given["model"], given["device"], given["mode"]) == (str(tmp_path), "cpu", "server")
    assert given["engine_config"] == EngineConfig(model=str(tmp_path), mode="server", num_threads=3)


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"device": "cuda"}, "device"),
        ({"model_lib": __file__}, "model_lib"),
        ({"model": "a", "engine_config": EngineConfig(model="b")}, "model"),
        ({"mode": "local", "engine_config": EngineConfig(mode="server")}, "mode"),
        ({"mode": "quick"}, "mode"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        AsyncMLCEngine(**arguments)

    assert caught.value.param == param


def test_arguments_that_conflict_are_explained_as_upstream_does() -> None:
    with pytest.raises(ValueError, match="The argument") as caught:
        AsyncMLCEngine("a", engine_config=EngineConfig(model="b"))

    assert str(caught.value) == (
        'The argument "model" of engine constructor is "a", while the "model" field in argument '
        '"engine_config" is "b". Please set the "engine_config.model" to None or set it to the '
        'same as the argument "model".'
    )


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_that_forgets_terminate_ends(backend: str) -> None:
    core = FakeCore(["Hi!"])

    async def main() -> None:
        engine = AsyncMLCEngine(loader=fake_loader(core))
        await engine.chat.completions.create(messages=HELLO, stream=True)

    anyio.run(main, backend=backend)

    assert core.is_closed
    assert not core.is_running


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_whose_first_request_is_refused_ends_without_a_warning(backend: str) -> None:
    async def main() -> None:
        engine = AsyncMLCEngine(loader=fake_loader())
        await engine.chat.completions.create(messages=HELLO, chat_template_kwargs={"messages": 1})

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(BadRequestError):
            anyio.run(main, backend=backend)

        gc.collect()

    assert told == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_next_event_loop_is_told_that_the_engines_own_has_ended(backend: str) -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    anyio.run(ask, engine, backend=backend)

    with pytest.raises(EngineClosedError, match="event loop"):
        anyio.run(ask, engine, backend=backend)


@pytest.mark.parametrize(
    "run", ["run()", "one = threading.Thread(target=run); one.start(); one.join()"]
)
def test_an_engine_whose_event_loop_just_stopped_does_not_keep_the_process(run: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STOPPED.replace("RUN", run)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert (ended.stdout, ended.stderr, ended.returncode) == ("Hi!\n", "", 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_engine_in_a_daemon_thread_ends_before_the_interpreter_does(backend: str) -> None:
    program = DAEMON.replace("BACKEND", backend)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
    )

    assert (ended.stdout, ended.stderr, ended.returncode) == ("True False\n", "", 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_an_event_loop_that_opens_what_another_one_is_opening_is_refused(
    backend: str,
) -> None:
    loader = GatedLoader(FakeCore(["Hi!"]))
    engine = AsyncMLCEngine(loader=loader)
    texts: list[str | None] = []

    async def open_it() -> None:
        texts.append(await ask(engine))

    async with create_task_group() as tasks:
        tasks.start_soon(open_it)
        await wait_all_tasks_blocked()
        with pytest.raises(EngineClosedError, match="another event loop"):
            await to_thread.run_sync(partial(anyio.run, ask, engine, backend=backend))

        loader.gate.set()

    engine.terminate()
    assert texts == ["Hi!"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_stream_that_another_event_loop_reads_is_refused_and_the_engine_lives(
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
def test_the_next_event_loop_may_load_the_model_again(backend: str) -> None:
    engine = AsyncMLCEngine(loader=fake_loader(replies=["Hi!"]))

    async def reload_and_ask() -> str | None:
        await engine.reload()
        return await ask(engine)

    assert [anyio.run(reload_and_ask, backend=one) for one in (backend, "asyncio")] == ["Hi!"] * 2


async def test_other_threads_ask_through_the_portal() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine:
        answers = [await to_thread.run_sync(engine.portal.call, ask, engine) for _ in range(2)]

    assert answers == ["Hi!", "Hi!"]
    with pytest.raises(EngineClosedError, match="portal"):
        _ = engine.portal


async def test_there_is_no_portal_without_a_scope() -> None:
    engine = AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"])))
    await ask(engine)

    with pytest.raises(EngineClosedError, match="portal"):
        _ = engine.portal

    engine.terminate()


async def test_leaving_the_scope_cancels_what_threads_still_wait_for() -> None:
    loader = fake_loader(FakeCore())
    started, ended = anyio.Event(), threading.Event()

    async def wait_for_ever() -> None:
        started.set()
        await anyio.sleep_forever()

    def work(portal: BlockingPortal) -> None:
        with pytest.raises(CancelledError):
            portal.call(wait_for_ever)

        ended.set()

    async with create_task_group() as tasks, AsyncMLCEngine(loader=loader) as engine:
        tasks.start_soon(to_thread.run_sync, work, engine.portal)
        await started.wait()

    assert ended.is_set()


async def test_an_error_in_the_scope_comes_out_as_itself() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with AsyncMLCEngine(loader=fake_loader(FakeCore())):
            raise KeyError("mine")
