"""Tests of opening, using and closing an `AsyncMLCEngine`."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, to_thread, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.errors import (
    BadRequestError,
    EngineClosedError,
    EngineDeadError,
    EngineError,
    ModelLoadError,
)
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.testing import FakeCore, fake_loader, fake_model
from tests.unit.api.engines.async_engine_helpers import HELLO, GatedLoader, ask

pytestmark = pytest.mark.timeout(20)


async def test_the_scope_opens_and_frees_the_model() -> None:
    core = FakeCore(["Hi!"])

    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        text = await ask(engine)

    assert text == "Hi!"
    assert core.is_closed
    assert not core.is_running
    with pytest.raises(EngineClosedError):
        await ask(engine)


async def test_without_a_scope_the_first_request_opens_the_model_and_terminate_frees_it() -> None:
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


async def test_terminate_ends_running_requests() -> None:
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


async def test_an_engine_terminated_before_the_first_request_cannot_be_opened() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    engine.terminate()

    with pytest.raises(EngineClosedError):
        await ask(engine)

    with pytest.raises(EngineClosedError):
        async with engine:
            pass


async def test_concurrent_first_requests_load_the_model_once() -> None:
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
    assert loader.num_calls == 1


async def test_if_the_loading_caller_is_cancelled_the_next_one_loads() -> None:
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
    assert loader.num_calls == 2


async def test_terminate_while_loading_closes_the_loaded_model() -> None:
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


async def test_a_load_error_is_raised_with_and_without_a_scope() -> None:
    async def load(model: object, **_: object) -> LoadedModel:
        raise ModelLoadError("missing tensor", path="model.safetensors", tensor="x")

    with pytest.raises(ModelLoadError, match="missing tensor"):
        async with AsyncMLCEngine(loader=load):
            pass

    with pytest.raises(ModelLoadError, match="missing tensor") as caught:
        await ask(AsyncMLCEngine(loader=load))

    assert (caught.value.path, caught.value.tensor) == ("model.safetensors", "x")


async def test_the_failure_of_the_engine_is_raised_without_a_group() -> None:
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


async def test_an_engine_cannot_be_opened_after_its_scope_was_left() -> None:
    engine = AsyncMLCEngine(loader=fake_loader())
    async with engine:
        pass

    with pytest.raises(EngineClosedError, match="was terminated"):
        async with engine:
            pass


async def test_dropping_an_engine_stops_its_core() -> None:
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


async def test_statistics_and_metrics() -> None:
    core = FakeCore(["Hi!"])

    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        await ask(engine)
        statistics = engine.statistics()
        metrics = await engine.metrics()

    assert (statistics.num_running, statistics.completion_tokens) == (0, 3)
    assert metrics["prompt_tokens_sum"] == 55
    assert metrics["completion_tokens_sum"] == 3
    assert metrics["decode_tokens_per_s"] == 3 / metrics["engine_decode_time_sum"]
    assert "\naiomlc_completion_tokens_total 3.0\n" in metrics.prometheus_text()
    assert "# TYPE aiomlc_completion_tokens_total counter\n" in metrics.prometheus_text()


async def test_a_closed_engine_has_no_statistics() -> None:
    with pytest.raises(EngineClosedError):
        AsyncMLCEngine(loader=fake_loader()).statistics()


async def test_progress_is_reported() -> None:
    reports: list[LoadProgress] = []

    async with AsyncMLCEngine(loader=fake_loader(), on_progress=reports.append):
        await checkpoint()

    assert [progress.stage for progress in reports] == ["load"]


async def test_the_loader_receives_the_arguments_of_the_constructor(tmp_path: Path) -> None:
    passed: dict[str, Any] = {}

    async def load(model: object, **options: object) -> LoadedModel:
        passed.update(options, model=model)
        return fake_model(FakeCore())

    config = EngineConfig(num_threads=3)
    async with AsyncMLCEngine(tmp_path, "cpu", mode="server", engine_config=config, loader=load):
        await checkpoint()

    path = str(tmp_path)
    assert (passed["model"], passed["device"], passed["mode"]) == (path, "cpu", "server")
    assert passed["engine_config"] == EngineConfig(model=path, mode="server", num_threads=3)


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"device": "metal"}, "device"),
        ({"model": "a", "engine_config": EngineConfig(model="b")}, "model"),
        ({"mode": "local", "engine_config": EngineConfig(mode="server")}, "mode"),
        ({"mode": "quick"}, "mode"),
    ],
)
def test_an_invalid_argument_is_named_in_the_error(arguments: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        AsyncMLCEngine(**arguments)

    assert caught.value.param == param


@pytest.mark.parametrize("in_config", [False, True])
def test_a_library_of_mlc_llm_is_ignored_with_a_warning(
    in_config: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if in_config:
        engine = AsyncMLCEngine(engine_config=EngineConfig(model_lib="system://llama"))
    else:
        (tmp_path / "lib.so").write_bytes(b"\x7fELF")
        engine = AsyncMLCEngine(model_lib=tmp_path / "lib.so")

    assert engine.engine_config.model_lib is None
    (message,) = caplog.messages
    assert "is ignored: the engine compiles the library of the model" in message


def test_contradicting_arguments_raise_mlc_llms_message() -> None:
    with pytest.raises(ValueError, match="The argument") as caught:
        AsyncMLCEngine("a", engine_config=EngineConfig(model="b"))

    assert str(caught.value) == (
        'The argument "model" of engine constructor is "a", while the "model" field in argument '
        '"engine_config" is "b". Please set the "engine_config.model" to None or set it to the '
        'same as the argument "model".'
    )


async def test_an_error_in_the_scope_is_raised_unchanged() -> None:
    with pytest.raises(KeyError, match="unchanged"):
        async with AsyncMLCEngine(loader=fake_loader(FakeCore())):
            raise KeyError("unchanged")
