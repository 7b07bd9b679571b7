"""Logits processors: what they are given, whom their exceptions end, what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine, BadRequestError, JSONFFIEngine, LogitsProcessorError, MLCEngine
from aiomlc.runtime.engine.logits_processors import LogitsProcessors, ProcessedSequence
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
Row = NDArray[np.float32]


def test_a_sequence_tells_all_token_ids_and_shares_its_buffer() -> None:
    seen: list[tuple[Sequence[int], float]] = []

    def first(token_ids: Sequence[int], logits: Row) -> None:
        logits[1] += 1

    def second(token_ids: Sequence[int], logits: Row) -> None:
        seen.append((token_ids, float(logits[1])))

    sequence = ProcessedSequence(LogitsProcessors([first, second]), 4)

    assert sequence([5, 6])
    assert sequence([7])
    assert seen == [((5, 6), 1.0), ((5, 6, 7), 2.0)]
    assert sequence.logits.tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_whatever_is_raised_is_kept_and_ends_the_call(kind: type[BaseException]) -> None:
    called = []

    def fail(token_ids: Sequence[int], logits: Row) -> None:
        raise kind("mine")

    processors = LogitsProcessors([fail, lambda ids, row: called.append(ids)])

    assert not processors.run((1,), np.zeros(2, np.float32))
    assert isinstance(processors.take_failure(), kind)
    assert processors.take_failure() is None
    assert called == []


async def test_an_exception_is_the_cause_of_its_requests_end_alone() -> None:
    def fail(token_ids: Sequence[int], logits: Row) -> None:
        if bytes(token_ids).endswith(b"Hi"):
            raise LookupError("mine")

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


async def test_a_choice_that_fails_ends_all_of_its_request() -> None:
    def fail(token_ids: Sequence[int], logits: Row) -> None:
        if bytes(token_ids).endswith(b"Ho"):
            raise LookupError("mine")

    core = FakeCore(["Hi!", "Ho!"])
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        with pytest.raises(LogitsProcessorError) as caught:
            await engine.completions.create(prompt="a", n=2, logits_processors=[fail])

    assert isinstance(caught.value.__cause__, LookupError)


def test_the_other_engine_tells_the_cause_too() -> None:
    def fail(token_ids: Sequence[int], logits: Row) -> None:
        raise LookupError("mine")

    with (
        MLCEngine(loader=fake_loader(FakeCore())) as engine,
        pytest.raises(LogitsProcessorError) as caught,
    ):
        engine.chat.completions.create(messages=HELLO, logits_processors=(fail,))

    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize("processors", ["f", ["f"], [1], len])
async def test_what_cannot_be_called_is_refused_by_name(processors: Any) -> None:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        with pytest.raises(BadRequestError, match="logits_processors") as caught:
            await engine.chat.completions.create(messages=HELLO, logits_processors=processors)

    assert str(caught.value.param).startswith("logits_processors")


def test_json_has_none() -> None:
    request = json.dumps({"messages": HELLO, "logits_processors": ["print"]})
    with JSONFFIEngine(loader=fake_loader(FakeCore())) as engine:
        told = "".join(engine.chat_completion(request))

    assert "logits_processors" in told


@pytest.mark.parametrize("none", [None, [], ()])
async def test_none_are_none(none: Sequence[Any] | None) -> None:
    core = FakeCore()
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        await engine.chat.completions.create(messages=HELLO, logits_processors=none)

    assert core.options[0].logits_processors is None
