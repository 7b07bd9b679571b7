"""Logits processors with the bundled model, through the native core."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

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


def request_for(prompt: str = STORY, **options: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], "temperature": 0, **options}


def text_of(completion: ChatCompletion, choice: int = 0) -> str:
    return completion.choices[choice].message.content or ""


def do_nothing(token_ids: Sequence[int], logits: Row) -> None:
    """Leave the logits unchanged."""


@pytest.fixture
def tokenizer(bundled_model: Path) -> Tokenizer:
    return Tokenizer(bundled_model / "tokenizer.json")


def ban(tokenizer: Tokenizer, letter: str) -> Callable[[Sequence[int], Row], None]:
    """Return a logits processor that bans all tokens with a letter."""
    banned = [i for i in range(4096) if letter in tokenizer.describe(i)[0].lower()]

    def processor(token_ids: Sequence[int], logits: Row) -> None:
        logits[banned] = -np.inf

    return processor


async def test_processor_that_does_nothing_keeps_every_bit() -> None:
    options: dict[str, Any] = {"max_tokens": 30, "seed": 3, "logprobs": True, "top_logprobs": 2}
    async with AsyncMLCEngine() as engine:
        plain = await engine.chat.completions.create(**request_for(**options) | {"temperature": 1})
        processed = await engine.chat.completions.create(
            **request_for(**options, logits_processors=[do_nothing]) | {"temperature": 1}
        )

    assert processed.choices == plain.choices


async def test_processor_gets_the_token_ids_so_far_and_the_models_logits(
    tokenizer: Tokenizer,
) -> None:
    prefixes: list[list[int]] = []
    best_ids: list[int] = []

    def record(token_ids: Sequence[int], logits: Row) -> None:
        prefixes.append(list(token_ids))
        best_ids.append(int(logits.argmax()))
        assert logits.shape == (4096,)
        assert logits.dtype == np.float32

    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(
            **request_for(max_tokens=12, logits_processors=[record])
        )

    assert completion.usage is not None
    assert [len(ids) for ids in prefixes] == [completion.usage.prompt_tokens + i for i in range(12)]
    assert STORY in tokenizer.decode(prefixes[0])
    completion_ids = [*prefixes[-1], best_ids[-1]][len(prefixes[0]) :]
    assert tokenizer.decode(completion_ids) == text_of(completion)


@pytest.mark.parametrize("mode", ["disable", "prompt_lookup"])
async def test_processors_of_a_request_apply_to_its_choices_only(
    tokenizer: Tokenizer, mode: Literal["disable", "prompt_lookup"]
) -> None:
    texts: dict[str, list[str]] = {}
    config = EngineConfig(speculative_mode=mode)
    async with AsyncMLCEngine(engine_config=config) as engine:

        async def complete(letter: str) -> None:
            processors = [ban(tokenizer, letter)] if letter else []
            completion = await engine.chat.completions.create(
                **request_for(n=2, max_tokens=40, seed=1, logits_processors=processors)
                | {"temperature": 1}
            )
            texts[letter] = [text_of(completion, choice) for choice in range(2)]

        async with create_task_group() as tasks:
            for letter in ("", "e", "a"):
                tasks.start_soon(complete, letter)

        batched = dict(texts)
        for letter in ("", "e", "a"):
            await complete(letter)

    assert texts == batched
    assert all("e" not in text.lower() for text in texts["e"])
    assert all("a" not in text.lower() for text in texts["a"])
    assert all("e" in text for text in texts[""])


async def test_grammar_mask_applies_after_the_processors(tokenizer: Tokenizer) -> None:
    grammar = {"syntax": "regex", "definition": "[0-9]{6}"}
    ids = {tokenizer.describe(token_id)[0]: token_id for token_id in range(4096)}

    def prefer(token_ids: Sequence[int], logits: Row) -> None:
        logits[ids["7"]] = 500
        logits[ids["x"]] = 900

    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(
            **request_for(
                response_format={"type": "grammar", **grammar}, logits_processors=[prefer]
            )
        )

    assert re.fullmatch("7{6}", text_of(completion))


async def test_exception_fails_only_its_request() -> None:
    def fail(token_ids: Sequence[int], logits: Row) -> None:
        if len(token_ids) > 25:
            raise LookupError("deliberate failure")

    def ban_all(token_ids: Sequence[int], logits: Row) -> None:
        logits[:] = -np.inf

    async with AsyncMLCEngine() as engine:
        stream = await engine.chat.completions.create(
            **request_for(max_tokens=60, stream=True, logits_processors=[do_nothing])
        )
        with pytest.raises(LogitsProcessorError) as caught:
            await engine.chat.completions.create(
                **request_for(max_tokens=60, logits_processors=[do_nothing, fail])
            )
        with pytest.raises(RequestFailedError, match="no token is allowed"):
            await engine.chat.completions.create(**request_for(logits_processors=[ban_all]))
        chunks = [chunk async for chunk in stream]
        statistics = engine.statistics()

    assert isinstance(caught.value.__cause__, LookupError)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert statistics.num_running == 0


async def test_processor_can_abort_its_request() -> None:
    async with AsyncMLCEngine() as engine:

        def abort(token_ids: Sequence[int], logits: Row) -> None:
            from_thread.run(engine.abort, "deliberate failure")

        with pytest.raises(RequestAbortedError):
            await engine.chat.completions.create(
                **request_for(request_id="deliberate failure", logits_processors=[abort])
            )
        again = await engine.chat.completions.create(**request_for(max_tokens=3))

    assert again.choices[0].finish_reason == "length"


async def test_cancelled_reader_does_not_wait_for_a_running_processor() -> None:
    is_called, may_return = Event(), threading.Event()

    def wait(token_ids: Sequence[int], logits: Row) -> None:
        if not may_return.is_set():
            from_thread.run_sync(is_called.set)
            assert may_return.wait(10)

    async with AsyncMLCEngine() as engine:
        async with create_task_group() as tasks:

            async def complete() -> None:
                await engine.chat.completions.create(**request_for(logits_processors=[wait]))

            tasks.start_soon(complete)
            await is_called.wait()
            tasks.cancel_scope.cancel()

        may_return.set()
        completion = await engine.chat.completions.create(**request_for(max_tokens=3))
        statistics = engine.statistics()

    assert completion.choices[0].finish_reason == "length"
    assert statistics.finished["abort"] == 1


def test_processor_can_terminate_its_engine() -> None:
    engine = MLCEngine()
    with pytest.raises(EngineClosedError):
        engine.chat.completions.create(
            **request_for(logits_processors=[lambda ids, row: engine.terminate()])
        )

    engine.terminate()


async def test_finished_request_does_not_keep_its_processors_alive() -> None:
    class Processor:
        def __call__(self, token_ids: Sequence[int], logits: Row) -> None:
            if self.fails:
                raise LookupError("deliberate failure")

        fails = False

    async with AsyncMLCEngine() as engine:
        processor = Processor()
        reference = weakref.ref(processor)
        await engine.chat.completions.create(
            **request_for(max_tokens=3, logits_processors=[processor])
        )
        processor.fails = True
        with pytest.raises(LogitsProcessorError):
            await engine.chat.completions.create(**request_for(logits_processors=[processor]))

        del processor
        await engine.chat.completions.create(**request_for(max_tokens=3))
        gc.collect()
        assert reference() is None


def test_program_can_exit_while_a_processor_runs() -> None:
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
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.strip() == "chat.completion.chunk"
    assert result.stderr == ""
