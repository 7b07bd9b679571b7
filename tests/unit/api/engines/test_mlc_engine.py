"""Tests of `MLCEngine`."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, ChatCompletionChunk, MLCEngine, SyncMLCEngine
from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.engines.sync_resources import ChatCompletionIterator
from aiomlc.errors import (
    BadRequestError,
    EngineClosedError,
    EngineDeadError,
    EngineError,
    ModelLoadError,
    RequestAbortedError,
)
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.testing import FakeCore, fake_loader
from tests.interruption import interrupt_main_thread

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(autouse=True)
def no_engine_thread_remains() -> Iterator[None]:
    yield
    names = [thread.name for thread in threading.enumerate()]
    assert "aiomlc engine" not in names


def ask(engine: MLCEngine) -> str | None:
    return engine.chat.completions.create(messages=HELLO).choices[0].message.content


def text_of(stream: ChatCompletionIterator) -> str:
    return "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)


def test_completions_can_be_streamed_or_not() -> None:
    with MLCEngine(loader=fake_loader(replies=["Hi!"])) as engine:
        text = ask(engine)
        streamed = text_of(engine.chat.completions.create(messages=HELLO, stream=True))

    assert (text, streamed) == ("Hi!", "Hi!")


def test_terminate_frees_the_core_and_later_requests_are_rejected() -> None:
    core = FakeCore()
    engine = MLCEngine(loader=fake_loader(core))

    engine.terminate()
    engine.terminate()

    assert core.is_closed
    assert not core.is_running
    with pytest.raises(EngineClosedError):
        ask(engine)


def test_requests_of_several_threads_share_steps() -> None:
    core = FakeCore(["Hello!"], hand_stepped=True)

    with MLCEngine(loader=fake_loader(core)) as engine, ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(ask, engine) for _ in range(4)]
        while core.statistics().num_running < 4:
            pass

        core.allow(7)
        texts = [future.result() for future in futures]

    assert texts == ["Hello!"] * 4
    assert core.statistics().steps == 7


def test_terminate_ends_the_requests_of_other_threads() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    engine = MLCEngine(loader=fake_loader(core))

    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(ask, engine) for _ in range(2)]
        while core.statistics().num_running < 2:
            pass

        engine.terminate()

        for future in futures:
            with pytest.raises(EngineClosedError):
                future.result()


def test_leaving_a_stream_early_cancels_its_request() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    with MLCEngine(loader=fake_loader(core)) as engine:
        core.allow(1)
        with engine.chat.completions.create(messages=HELLO, stream=True) as stream:
            assert repr(stream).startswith("<BlockingStream of <ChatCompletionStream of ")
            for _ in stream:
                break

        assert core.cancelled == [1]
        with pytest.raises(StopIteration):
            next(stream)


def test_a_stream_can_be_closed_after_its_engine() -> None:
    engine = MLCEngine(loader=fake_loader(hand_stepped=True))
    stream = engine.chat.completions.create(messages=HELLO, stream=True)

    engine.terminate()
    stream.close()

    with pytest.raises(EngineClosedError):
        next(stream)


def test_a_dropped_stream_cancels_its_request() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    with MLCEngine(loader=fake_loader(core)) as engine:
        stream = engine.chat.completions.create(messages=HELLO, stream=True)
        del stream
        gc.collect()

        assert core.cancelled == [1]


def test_an_interrupted_read_cancels_its_request() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    with MLCEngine(loader=fake_loader(core)) as engine, ThreadPoolExecutor(1) as threads:
        stream = engine.chat.completions.create(messages=HELLO, stream=True)
        assert isinstance(stream._stream, ChatCompletionStream)
        deltas = stream._stream._deltas

        def interrupt() -> None:
            while not deltas._reading:
                pass

            interrupt_main_thread()

        threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(stream)

        assert core.cancelled == [1]


def test_an_interrupted_request_is_cancelled() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    with MLCEngine(loader=fake_loader(core)) as engine, ThreadPoolExecutor(1) as threads:

        def interrupt() -> None:
            while not core.prompts:
                pass

            interrupt_main_thread()

        threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            ask(engine)

    assert core.cancelled == [1]


def test_abort_ends_a_request_of_another_thread() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    with MLCEngine(loader=fake_loader(core)) as engine:
        stream = engine.chat.completions.create(messages=HELLO, stream=True, request_id="r1")
        with ThreadPoolExecutor(1) as threads:
            reading = threads.submit(next, stream)
            engine.abort("r1")

            with pytest.raises(RequestAbortedError):
                reading.result()


def test_ready_chunks_are_received_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    core = FakeCore(["x" * 500])
    num_calls = 0

    with MLCEngine(loader=fake_loader(core)) as engine:
        stream = engine.chat.completions.create(messages=HELLO, stream=True)
        receive_batch = ChatCompletionStream.receive_batch

        async def count(self: ChatCompletionStream) -> list[ChatCompletionChunk]:
            nonlocal num_calls
            num_calls += 1
            return await receive_batch(self)

        monkeypatch.setattr(ChatCompletionStream, "receive_batch", count)
        while core.statistics().num_running:
            pass

        text = text_of(stream)

    assert text == "x" * 500
    assert num_calls < 10


def test_errors_are_raised_unchanged() -> None:
    with MLCEngine(loader=fake_loader()) as engine, pytest.raises(BadRequestError) as caught:
        engine.chat.completions.create(messages=[], best_of=2)  # type: ignore[call-overload]

    assert caught.value.param == "best_of"


def test_the_engine_thread_cannot_wait_for_itself() -> None:
    errors: list[BaseException] = []
    engines: list[MLCEngine] = []

    def count(_: LoadProgress) -> None:
        for engine in engines:
            with pytest.raises(EngineError, match="cannot wait for") as caught:
                engine.metrics()

            errors.append(caught.value)

    with MLCEngine(loader=fake_loader(), on_progress=count) as engine:
        engines.append(engine)
        engine.reload()

    assert [type(error) for error in errors] == [EngineError]


def test_a_failed_constructor_leaves_no_thread() -> None:
    async def load(model: object, **_: object) -> LoadedModel:
        raise ModelLoadError("missing file")

    with pytest.raises(ModelLoadError, match="missing file"):
        MLCEngine(loader=load)

    with pytest.raises(BadRequestError):
        MLCEngine(device="metal")


def test_the_failure_of_the_engine_is_raised_and_leaves_no_thread() -> None:
    engine = MLCEngine(loader=fake_loader(replies=["x" * 10], dies_at_step=2))

    with pytest.raises(EngineDeadError):
        ask(engine)

    with pytest.raises(EngineDeadError):
        engine.terminate()


def test_a_dropped_engine_ends_its_thread() -> None:
    core = FakeCore()
    engine = MLCEngine(loader=fake_loader(core))
    ask(engine)

    del engine
    gc.collect()

    assert core.is_closed
    assert not core.is_running


def test_what_makes_requests_keeps_its_engine_open() -> None:
    core = FakeCore(["abc"])

    chat = MLCEngine(loader=fake_loader(core)).chat
    gc.collect()
    stream = chat.completions.create(messages=HELLO, stream=True)
    del chat
    gc.collect()

    assert text_of(stream) == "abc"
    assert not core.is_closed
    del stream
    gc.collect()
    assert core.is_closed


def test_dropping_a_failed_engine_raises_nothing() -> None:
    core = FakeCore(dies_at_step=1)
    engine = MLCEngine(loader=fake_loader(core))
    with pytest.raises(EngineDeadError):
        ask(engine)

    del engine
    gc.collect()

    assert core.is_closed


@pytest.mark.thorough
def test_a_program_without_terminate_exits() -> None:
    program = """
import aiomlc
from aiomlc.testing import fake_loader

engine = aiomlc.MLCEngine(loader=fake_loader(replies=["x" * 100], hand_stepped=True))
stream = engine.chat.completions.create(
    messages=[{"role": "user", "content": "Hello"}], stream=True
)
print("done")
"""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=20
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")


def test_two_engines_are_independent() -> None:
    with (
        MLCEngine(loader=fake_loader(replies=["one"])) as first,
        MLCEngine(loader=fake_loader(replies=["two"])) as second,
    ):
        texts = ask(first), ask(second), ask(first)

    assert texts == ("one", "two", "one")


def test_statistics_and_metrics() -> None:
    with MLCEngine(loader=fake_loader(replies=["Hi!"])) as engine:
        ask(engine)

        assert engine.statistics().completion_tokens == 3
        assert engine.metrics()["completion_tokens_sum"] == 3


def test_repr_and_request_id() -> None:
    with MLCEngine(loader=fake_loader(hand_stepped=True)) as engine:
        stream = engine.chat.completions.create(messages=HELLO, stream=True, request_id="r")
        stream.close()

        assert repr(engine) == "<MLCEngine bundled model>"
        assert stream.request_id == "r"


async def test_an_engine_may_be_created_in_a_running_event_loop() -> None:
    with MLCEngine(loader=fake_loader(replies=["abc"])) as engine:
        assert engine.completions.create(prompt="a").choices[0].text == "abc"


async def test_an_engine_that_blocks_an_event_loop_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    MLCEngine("mock://echo").terminate()

    assert "MLCEngine blocks the event loop" in caplog.text


def test_an_engine_outside_of_event_loops_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    MLCEngine("mock://echo").terminate()

    assert caplog.text == ""


def test_an_exit_in_the_progress_callback_reaches_the_caller() -> None:
    def leave(_: LoadProgress) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit) as caught:
        MLCEngine(loader=fake_loader(), on_progress=leave)

    assert caught.value.code == 3


@pytest.mark.parametrize("engine_class", [MLCEngine, AsyncMLCEngine, SyncMLCEngine])
def test_an_engine_cannot_be_copied(engine_class: Any) -> None:  # noqa: ANN401
    engine = engine_class(loader=fake_loader())
    try:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled: open another one"):
                duplicate(engine)
    finally:
        engine.terminate()


@pytest.mark.parametrize(
    ("engine_class", "name"),
    [
        (MLCEngine, "close"),
        (AsyncMLCEngine, "close"),
        (AsyncMLCEngine, "aclose"),
        (SyncMLCEngine, "close"),
    ],
)
def test_an_engine_is_ended_by_terminate(engine_class: Any, name: str) -> None:  # noqa: ANN401
    engine = engine_class(loader=fake_loader())
    try:
        with pytest.raises(AttributeError, match=r"write `terminate\(\)`"):
            getattr(engine, name)
    finally:
        engine.terminate()
