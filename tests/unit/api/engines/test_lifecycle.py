"""Tests of drain, reset, unload and reload with running requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, fail_after, move_on_after, wait_all_tasks_blocked

from aiomlc import (
    AsyncMLCEngine,
    ChatCompletion,
    EngineClosedError,
    EngineConfig,
    EngineDeadError,
    EngineDrainingError,
    MLCEngine,
    ModelLoadError,
    ModelNotFoundError,
    RequestAbortedError,
)
from aiomlc.api.session.loader import Loader
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]


def loader_of(*cores: FakeCore | ModelLoadError) -> Loader:
    """Return a loader whose calls load one core after the other, or raise the error."""
    remaining = list(cores)

    async def load(model: Any, **options: Any) -> Any:  # noqa: ANN401
        core = remaining.pop(0)
        if isinstance(core, ModelLoadError):
            raise core

        return await fake_loader(core)(model, **options)

    return load


async def ask(engine: AsyncMLCEngine) -> ChatCompletion:
    return await engine.chat.completions.create(messages=HELLO)


async def test_drain_lets_running_requests_finish_and_rejects_new_ones() -> None:
    core = FakeCore(["Hello!"], hand_stepped=True)
    drained: list[bool] = []
    with fail_after(10):
        async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
            stream = await engine.chat.completions.create(messages=HELLO, stream=True)

            async def drain() -> None:
                drained.append(await engine.drain(timeout=9))

            async with create_task_group() as tasks:
                tasks.start_soon(drain)
                await wait_all_tasks_blocked()
                with pytest.raises(EngineDrainingError):
                    await ask(engine)

                assert drained == []
                core.allow(1000)

            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            with pytest.raises(EngineDrainingError):
                await ask(engine)

            engine.resume()
            response = await ask(engine)

    assert drained == [True]
    assert text == response.choices[0].message.content == "Hello!"


async def test_drain_aborts_the_remaining_requests_after_its_timeout() -> None:
    core = FakeCore(["Hello!"], hand_stepped=True)
    with fail_after(10):
        async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
            stream = await engine.chat.completions.create(messages=HELLO, stream=True)
            assert await engine.drain(timeout=0.01) is False
            with pytest.raises(RequestAbortedError):
                await anext(stream)


async def test_drain_of_an_idle_engine_returns_at_once() -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        assert await engine.drain() is True


async def test_a_cancelled_drain_aborts_nothing_and_new_requests_stay_rejected() -> None:
    core = FakeCore(["Hello!"], hand_stepped=True)
    with fail_after(10):
        async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
            stream = await engine.chat.completions.create(messages=HELLO, stream=True)
            with move_on_after(0.01):
                await engine.drain()

            with pytest.raises(EngineDrainingError):
                await ask(engine)

            core.allow(1000)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert text == "Hello!"


async def test_a_second_drain_continues_after_a_cancelled_one() -> None:
    core = FakeCore(["Hello!"], hand_stepped=True)
    with fail_after(10):
        async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
            stream = await engine.chat.completions.create(messages=HELLO, stream=True)
            with move_on_after(0.01):
                await engine.drain()

            core.allow(1000)
            assert await engine.drain()
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert text == "Hello!"


async def test_reset_aborts_every_request_and_the_engine_continues() -> None:
    core = FakeCore(["Hello!"], hand_stepped=True)
    with fail_after(10):
        async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
            stream = await engine.chat.completions.create(messages=HELLO, stream=True)
            core.allow(2)
            await anext(stream)
            await engine.reset()
            with pytest.raises(RequestAbortedError):
                async for _ in stream:
                    pass

            assert engine.statistics().completion_tokens == 0
            core.allow(1000)
            assert (await ask(engine)).choices[0].message.content == "Hello!"


async def test_reset_aborts_at_once_and_need_not_be_awaited() -> None:
    core = FakeCore(["Hello!"], hand_stepped=True)
    engine = AsyncMLCEngine(loader=fake_loader(core))
    with fail_after(10):
        engine.reset()  # The model is not open yet.
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        engine.reset()
        assert core.cancelled == [1]
        with pytest.raises(RequestAbortedError):
            await anext(stream)

        await engine.unload()
        with pytest.raises(EngineClosedError):
            engine.reset()

    engine.terminate()


@pytest.mark.parametrize("in_scope", [True, False])
async def test_a_model_is_replaced_while_a_request_is_running(in_scope: bool) -> None:
    first, second = FakeCore(["first"], hand_stepped=True), FakeCore(["second"])
    engine = AsyncMLCEngine(loader=loader_of(first, second))
    with fail_after(10):
        if in_scope:
            async with engine:
                await _replace_model(engine, first)
        else:
            await _replace_model(engine, first)
            engine.terminate()

    assert first.is_released
    assert second.wait_until_stopped()


async def _replace_model(engine: AsyncMLCEngine, first: FakeCore) -> None:
    stream = await engine.chat.completions.create(messages=HELLO, stream=True)
    await engine.unload()
    assert first.is_released
    with pytest.raises(EngineClosedError):
        await anext(stream)

    with pytest.raises(EngineClosedError, match="reload"):
        await ask(engine)

    await engine.reload("another")
    assert engine.engine_config.model == "another"
    assert (await ask(engine)).choices[0].message.content == "second"


@pytest.mark.parametrize("name", ["nothing", "empty"])
async def test_a_model_that_does_not_exist_is_found_before_the_old_one_is_unloaded(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "empty").mkdir()
    with fail_after(60):
        async with AsyncMLCEngine(model_lib="mock://echo") as engine:
            with pytest.raises(ModelNotFoundError):
                await engine.reload(tmp_path / name)

            assert (await ask(engine)).choices[0].message.content


async def test_a_failed_reload_can_be_repeated() -> None:
    error = ModelLoadError("there is no such model")
    cores = (FakeCore(["first"]), error, FakeCore(["third"]))
    with fail_after(10):
        async with AsyncMLCEngine(loader=loader_of(*cores)) as engine:
            with pytest.raises(ModelLoadError):
                await engine.reload("missing")

            with pytest.raises(EngineClosedError, match="reload"):
                await ask(engine)

            await engine.reload()
            assert (await ask(engine)).choices[0].message.content == "third"


def test_the_blocking_engine_can_drain_reset_unload_and_reload() -> None:
    config = EngineConfig(max_num_sequence=2)
    loader = loader_of(FakeCore(["first"]), FakeCore(["second"]))
    with MLCEngine(loader=loader, engine_config=config) as engine:
        assert engine.drain(timeout=5) is True
        engine.resume()
        engine.reset()
        engine.unload()
        engine.reload("another")
        response = engine.chat.completions.create(messages=HELLO)

    assert response.choices[0].message.content == "second"
    assert engine.engine_config.model == "another"


async def test_concurrent_reloads_leave_one_open_model_and_the_scope_frees_all() -> None:
    cores = [FakeCore(["Hi"]) for _ in range(3)]
    with fail_after(10):
        async with AsyncMLCEngine(loader=loader_of(*cores)) as engine:
            async with create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(engine.reload)

            assert [core.is_closed for core in cores] == [True, True, False]
            await ask(engine)

    assert all(core.is_released for core in cores)


async def test_drain_raises_if_the_engine_fails_meanwhile() -> None:
    core = FakeCore(["Hello!"], hand_stepped=True, dies_at_step=2)
    engine = AsyncMLCEngine(loader=fake_loader(core))
    with fail_after(10):
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)

        async def drain() -> None:
            with pytest.raises(EngineDeadError):
                await engine.drain()

        async with create_task_group() as tasks:
            tasks.start_soon(drain)
            await wait_all_tasks_blocked()
            core.allow(2)

        await stream.aclose()
