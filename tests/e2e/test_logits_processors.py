"""Logits processors on the bundled model, through the native core."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import Event, create_task_group, from_thread
from numpy.typing import NDArray

from aiomlc import (
    AsyncMLCEngine,
    ChatCompletion,
    EngineClosedError,
    EngineConfig,
    LogitsProcessorError,
    MLCEngine,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

STORY = "Tell me a story about a fox called Rosa."
Row = NDArray[np.float32]


def asking(prompt: str = STORY, **options: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], "temperature": 0, **options}


def text_of(answer: ChatCompletion, choice: int = 0) -> str:
    return answer.choices[choice].message.content or ""


def nothing(token_ids: Sequence[int], logits: Row) -> None:
    """Leaves the logits as they are."""


@pytest.fixture
def tokenizer(bundled_model: Path) -> Tokenizer:
    return Tokenizer.from_file(bundled_model / "tokenizer.json")


def ban(tokenizer: Tokenizer, letter: str) -> Callable[[Sequence[int], Row], None]:
    banned = [i for i in range(4096) if letter in tokenizer.describe(i)[0].lower()]

    def processor(token_ids: Sequence[int], logits: Row) -> None:
        logits[banned] = -np.inf

    return processor


async def test_one_that_does_nothing_changes_no_bit() -> None:
    options: dict[str, Any] = {"max_tokens": 30, "seed": 3, "logprobs": True, "top_logprobs": 2}
    async with AsyncMLCEngine() as engine:
        plain = await engine.chat.completions.create(**asking(**options) | {"temperature": 1})
        processed = await engine.chat.completions.create(
            **asking(**options, logits_processors=[nothing]) | {"temperature": 1}
        )

    assert processed.choices == plain.choices


async def test_it_sees_prompt_and_answer_and_the_models_logits(tokenizer: Tokenizer) -> None:
    seen: list[Sequence[int]] = []
    best: list[int] = []

    def watch(token_ids: Sequence[int], logits: Row) -> None:
        seen.append(token_ids)
        best.append(int(logits.argmax()))
        assert logits.shape == (4096,)
        assert logits.dtype == np.float32

    async with AsyncMLCEngine() as engine:
        answer = await engine.chat.completions.create(
            **asking(max_tokens=12, logits_processors=[watch])
        )

    assert answer.usage is not None
    assert [len(ids) for ids in seen] == [answer.usage.prompt_tokens + i for i in range(12)]
    assert STORY in tokenizer.decode(list(seen[0]))
    assert tokenizer.decode([*seen[-1], best[-1]][len(seen[0]) :]) == text_of(answer)


@pytest.mark.parametrize("mode", ["disable", "prompt_lookup"])
async def test_every_request_and_choice_has_its_own(tokenizer: Tokenizer, mode: Any) -> None:  # noqa: ANN401
    texts: dict[str, list[str]] = {}
    config = EngineConfig(speculative_mode=mode)
    async with AsyncMLCEngine(engine_config=config) as engine:

        async def ask(letter: str) -> None:
            processors = [ban(tokenizer, letter)] if letter else []
            answer = await engine.chat.completions.create(
                **asking(n=2, max_tokens=40, seed=1, logits_processors=processors)
                | {"temperature": 1}
            )
            texts[letter] = [text_of(answer, choice) for choice in range(2)]

        async with create_task_group() as tasks:
            for letter in ("", "e", "a"):
                tasks.start_soon(ask, letter)

        together = dict(texts)
        for letter in ("", "e", "a"):
            await ask(letter)

    assert texts == together
    assert all("e" not in text.lower() for text in texts["e"])
    assert all("a" not in text.lower() for text in texts["a"])
    assert all("e" in text for text in texts[""])


async def test_a_grammar_has_the_last_word(tokenizer: Tokenizer) -> None:
    grammar = {"syntax": "regex", "definition": "[0-9]{6}"}
    ids = {tokenizer.describe(token_id)[0]: token_id for token_id in range(4096)}

    def prefer(token_ids: Sequence[int], logits: Row) -> None:
        logits[ids["7"]] = 500
        logits[ids["x"]] = 900

    async with AsyncMLCEngine() as engine:
        answer = await engine.chat.completions.create(
            **asking(response_format={"type": "grammar", **grammar}, logits_processors=[prefer])
        )

    assert re.fullmatch("7{6}", text_of(answer))


async def test_an_exception_ends_its_request_alone() -> None:
    def fail(token_ids: Sequence[int], logits: Row) -> None:
        if len(token_ids) > 25:
            raise LookupError("mine")

    def leave_nothing(token_ids: Sequence[int], logits: Row) -> None:
        logits[:] = -np.inf

    async with AsyncMLCEngine() as engine:
        sound = await engine.chat.completions.create(
            **asking(max_tokens=60, stream=True, logits_processors=[nothing])
        )
        with pytest.raises(LogitsProcessorError) as caught:
            await engine.chat.completions.create(
                **asking(max_tokens=60, logits_processors=[nothing, fail])
            )
        with pytest.raises(RequestFailedError, match="no token is left"):
            await engine.chat.completions.create(**asking(logits_processors=[leave_nothing]))
        told = [chunk async for chunk in sound]
        free = engine.statistics()

    assert isinstance(caught.value.__cause__, LookupError)
    assert told[-1].choices[0].finish_reason == "length"
    assert free.num_running == 0


async def test_it_may_abort_its_own_request() -> None:
    async with AsyncMLCEngine() as engine:

        def abort(token_ids: Sequence[int], logits: Row) -> None:
            from_thread.run(engine.abort, "mine")

        with pytest.raises(RequestAbortedError):
            await engine.chat.completions.create(
                **asking(request_id="mine", logits_processors=[abort])
            )
        again = await engine.chat.completions.create(**asking(max_tokens=3))

    assert again.choices[0].finish_reason == "length"


async def test_a_reader_that_leaves_during_a_call_waits_for_nothing() -> None:
    entered, left = Event(), threading.Event()

    def wait(token_ids: Sequence[int], logits: Row) -> None:
        if not left.is_set():
            from_thread.run_sync(entered.set)
            assert left.wait(10)

    async with AsyncMLCEngine() as engine:
        async with create_task_group() as tasks:

            async def ask() -> None:
                await engine.chat.completions.create(**asking(logits_processors=[wait]))

            tasks.start_soon(ask)
            await entered.wait()
            tasks.cancel_scope.cancel()

        left.set()
        answer = await engine.chat.completions.create(**asking(max_tokens=3))
        statistics = engine.statistics()

    assert answer.choices[0].finish_reason == "length"
    assert statistics.finished["abort"] == 1


def test_it_may_terminate_its_engine() -> None:
    engine = MLCEngine()
    with pytest.raises(EngineClosedError):
        engine.chat.completions.create(
            **asking(logits_processors=[lambda ids, row: engine.terminate()])
        )

    engine.terminate()


async def test_nothing_of_it_is_kept_when_the_request_has_ended() -> None:
    class Processor:
        def __call__(self, token_ids: Sequence[int], logits: Row) -> None:
            if len(token_ids) == self.fails_at:
                raise LookupError("mine")

        fails_at = 0

    async with AsyncMLCEngine() as engine:
        processor = Processor()
        reference = weakref.ref(processor)
        await engine.chat.completions.create(**asking(max_tokens=3, logits_processors=[processor]))
        processor.fails_at = 20
        with pytest.raises(LogitsProcessorError):
            await engine.chat.completions.create(**asking(logits_processors=[processor]))

        del processor
        await engine.chat.completions.create(**asking(max_tokens=3))
        gc.collect()
        assert reference() is None


def test_a_program_may_end_during_a_call() -> None:
    program = """
import time
from aiomlc import MLCEngine
engine = MLCEngine()
stream = engine.chat.completions.create(
    messages=[{"role": "user", "content": "Hi"}], stream=True, ignore_eos=True,
    logits_processors=[lambda ids, row: time.sleep(0.005)],
)
print(next(iter(stream)).object)
"""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout.strip() == "chat.completion.chunk"
    assert ended.stderr == ""
