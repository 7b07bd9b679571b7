"""Tests of logits processors: their arguments, their exceptions and invalid values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    EngineError,
    GenerationConfig,
    JSONFFIEngine,
    LogitsProcessorError,
    MLCEngine,
    SyncMLCEngine,
)
from aiomlc.runtime.engine.logits_processors import LogitsProcessors, ProcessedSequence
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
Logits = NDArray[np.float32]


def test_processors_get_all_token_ids_and_one_logits_buffer() -> None:
    calls: list[tuple[Sequence[int], float]] = []

    def first(token_ids: Sequence[int], logits: Logits) -> None:
        logits[1] += 1

    def second(token_ids: Sequence[int], logits: Logits) -> None:
        calls.append((list(token_ids), float(logits[1])))

    sequence = ProcessedSequence(LogitsProcessors([first, second]), 4)

    assert sequence([5, 6])
    assert sequence([7])
    assert calls == [([5, 6], 1.0), ([5, 6, 7], 2.0)]
    assert sequence.logits.tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize("error_type", [ValueError, SystemExit, KeyboardInterrupt])
def test_exception_ends_the_call_and_is_kept(error_type: type[BaseException]) -> None:
    called = []

    def fail(token_ids: Sequence[int], logits: Logits) -> None:
        raise error_type("deliberate failure")

    processors = LogitsProcessors([fail, lambda ids, _: called.append(ids)])

    assert not processors.run((1,), np.zeros(2, np.float32))
    assert isinstance(processors.take_failure(), error_type)
    assert processors.take_failure() is None
    assert called == []


async def test_exception_fails_only_its_request_and_is_the_cause() -> None:
    def fail(token_ids: Sequence[int], logits: Logits) -> None:
        if bytes(token_ids).endswith(b"Hi"):
            raise LookupError("deliberate failure")

    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!", "Ho!"]))) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, request_id="r", logits_processors=[fail]
        )
        other = await engine.chat.completions.create(messages=HELLO)
        texts: list[str] = []

        async def read() -> None:
            while True:
                chunk = await anext(stream)
                texts.append(chunk.choices[0].delta.content or "")

        with pytest.raises(LogitsProcessorError, match="'r'") as caught:
            await read()

    assert isinstance(caught.value.__cause__, LookupError)
    assert caught.value.request_id == "r"
    assert "".join(texts) == "Hi"
    assert other.choices[0].message.content == "Ho!"


async def test_failure_of_one_choice_fails_the_request() -> None:
    def fail(token_ids: Sequence[int], logits: Logits) -> None:
        if bytes(token_ids).endswith(b"Ho"):
            raise LookupError("deliberate failure")

    core = FakeCore(["Hi!", "Ho!"])
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        with pytest.raises(LogitsProcessorError) as caught:
            await engine.completions.create(prompt="a", n=2, logits_processors=[fail])

    assert isinstance(caught.value.__cause__, LookupError)


def test_sync_engine_raises_the_error_with_its_cause() -> None:
    def fail(token_ids: Sequence[int], logits: Logits) -> None:
        raise LookupError("deliberate failure")

    with (
        MLCEngine(loader=fake_loader(FakeCore())) as engine,
        pytest.raises(LogitsProcessorError) as caught,
    ):
        engine.chat.completions.create(messages=HELLO, logits_processors=(fail,))

    assert isinstance(caught.value.__cause__, LookupError)


def test_a_processor_cannot_wait_for_its_engine_but_for_another() -> None:
    def call_engine(token_ids: Sequence[int], logits: Logits) -> None:
        other.chat.completions.create(messages=HELLO)
        engine.chat.completions.create(messages=HELLO)

    with MLCEngine(loader=fake_loader()) as other, MLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(LogitsProcessorError) as caught:
            engine.chat.completions.create(messages=HELLO, logits_processors=[call_engine])

        assert engine.chat.completions.create(messages=HELLO).choices

    assert isinstance(caught.value.__cause__, EngineError)
    assert "cannot wait for its engine" in str(caught.value.__cause__)


@pytest.mark.parametrize("method", ["step", "reset", "terminate", "generate"])
def test_a_processor_cannot_step_its_own_engine(method: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "step": lambda: engine.step(),
        "reset": lambda: engine.reset(),
        "terminate": lambda: engine.terminate(),
        "generate": lambda: engine.generate("a"),
    }
    errors: list[str] = []

    def call_engine(token_ids: Sequence[int], logits: Logits) -> None:
        try:
            calls[method]()
        except EngineError as error:
            errors.append(str(error))

    with SyncMLCEngine(loader=fake_loader(FakeCore(["ab"]))) as engine:
        config = GenerationConfig(logits_processors=[call_engine])
        texts, _ = engine.generate("a", config)

    assert texts == [["ab"]]
    assert errors
    assert all("cannot wait for its engine" in error for error in errors)


async def test_a_processor_cannot_use_the_portal_of_its_engine() -> None:
    async def ask() -> None:
        await engine.chat.completions.create(messages=HELLO)

    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(LogitsProcessorError) as caught:
            await engine.chat.completions.create(
                messages=HELLO, logits_processors=[lambda *_: engine.portal.call(ask)]
            )

        assert engine.portal is not None

    assert isinstance(caught.value.__cause__, EngineError)


@pytest.mark.parametrize("processors", ["f", ["f"], [1], len])
async def test_value_that_is_not_callable_is_rejected(processors: Any) -> None:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        with pytest.raises(BadRequestError, match="logits_processors") as caught:
            await engine.chat.completions.create(messages=HELLO, logits_processors=processors)

    assert str(caught.value.param).startswith("logits_processors")


def test_json_requests_cannot_have_logits_processors() -> None:
    request = json.dumps({"messages": HELLO, "logits_processors": ["print"]})
    with JSONFFIEngine(loader=fake_loader(FakeCore())) as engine:
        response = "".join(engine.chat_completion(request))

    assert "logits_processors" in response


@pytest.mark.parametrize("processors", [None, [], ()])
async def test_empty_logits_processors_are_none(processors: Sequence[Any] | None) -> None:
    core = FakeCore()
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        await engine.chat.completions.create(messages=HELLO, logits_processors=processors)

    assert core.options[0].logits_processors is None
