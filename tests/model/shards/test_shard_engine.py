"""An engine whose model is in two processes: what it generates, and what is left after failures."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, fail_after, sleep, to_thread, wait_all_tasks_blocked

from aiomlc import AsyncMLCEngine, EngineConfig, EngineDeadError, ModelLoadError
from tests.model.shards.processes import children, has_ended, shard_memory

Directory = Callable[[str], Path]
KILLED = r"the model failed: shard 1 \(process {}\) was killed by SIGKILL"


def _engine(directory: Path, count: int, **fields: Any) -> AsyncMLCEngine:  # noqa: ANN401
    config = EngineConfig(
        quantization="q4f16_1", tensor_parallel_shards=count, num_threads=2, **fields
    )
    return AsyncMLCEngine(directory, engine_config=config)


async def _answers(engine: AsyncMLCEngine) -> list[str]:
    """Return greedy answers of a batch with common prefixes, forks and a grammar."""
    texts: dict[int, str] = {}
    hits: list[bool] = []

    async def ask(number: int, **fields: Any) -> None:  # noqa: ANN401
        question = f"{'Say something about numbers. ' * 4}Number {number}?"
        completion = await engine.chat.completions.create(
            messages=[{"role": "user", "content": question}],
            temperature=0,
            max_tokens=24,
            **{"ignore_eos": True, **fields},
        )
        texts[number] = "|".join(choice.message.content or "" for choice in completion.choices)
        usage = completion.usage
        assert usage is not None
        details = usage.prompt_tokens_details
        hits.append(details is not None and bool(details.cached_tokens))

    for first in (0, 3):  # The second time with a prefix that is cached.
        async with create_task_group() as tasks:
            tasks.start_soon(partial(ask, first, n=3))
            tasks.start_soon(partial(ask, first + 1))
            json_object = {"ignore_eos": False, "response_format": {"type": "json_object"}}
            tasks.start_soon(partial(ask, first + 2, **json_object))
    assert any(hits), "no prompt began with a cached prefix"
    return [texts[number] for number in sorted(texts)]


@pytest.mark.parametrize(
    "fields",
    [
        {"prefill_chunk_size": 40, "max_num_sequence": 8},
        {"kv_cache_dtype": "int8"},
        {"speculative_mode": "prompt_lookup"},
        {"max_total_sequence_length": 512, "max_num_sequence": 4},  # With preemption.
    ],
    ids=["chunks", "int8", "drafts", "few_pages"],
)
async def test_two_shards_answer_as_one(divisible: Directory, fields: dict[str, Any]) -> None:
    directory = divisible("llama")
    async with _engine(directory, 1, **fields) as engine:
        expected = await _answers(engine)

    async with _engine(directory, 2, **fields) as engine:
        actual = await _answers(engine)
        processes = children()

    assert actual == expected
    assert len(processes) == 1
    assert children() == []


async def test_a_cancelled_stream_leaves_the_shards_alike(divisible: Directory) -> None:
    messages = [{"role": "user", "content": "Count to a thousand."}]
    directory = divisible("qwen3")
    async with _engine(directory, 1) as engine:
        expected = await _answers(engine)

    async with _engine(directory, 2) as engine:
        for _ in range(3):
            async with engine.chat.completions.create(
                messages=messages, stream=True, max_tokens=400, ignore_eos=True
            ) as stream:
                async for _ in stream:
                    break
        assert await _answers(engine) == expected


@pytest.mark.parametrize("during", ["prefill", "decode"])
async def test_a_killed_worker_ends_the_engine(divisible: Directory, during: str) -> None:
    messages = [{"role": "user", "content": "Hello."}]
    before = shard_memory()
    engine = _engine(divisible("llama"), 2)
    with fail_after(60):
        await engine.chat.completions.create(messages=messages, max_tokens=1)
        (worker,) = children()
        stream = await engine.chat.completions.create(
            messages=messages, stream=True, max_tokens=400, ignore_eos=True
        )
        if during == "decode":
            await anext(aiter(stream))
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match=KILLED.format(worker)):
            await _read(stream)
        with pytest.raises(EngineDeadError, match=KILLED.format(worker)):
            await engine.chat.completions.create(messages=messages)
        engine.terminate()

    assert children() == []
    assert shard_memory() == before


async def _read(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        pass


async def test_closing_does_not_wait_for_a_worker_that_hangs(divisible: Directory) -> None:
    messages = [{"role": "user", "content": "Hello."}]
    engine = _engine(divisible("llama"), 2)
    with fail_after(30):
        await engine.chat.completions.create(messages=messages, max_tokens=2)
        (worker,) = children()
        os.kill(worker, signal.SIGSTOP)
        stream = await engine.chat.completions.create(messages=messages, stream=True, max_tokens=20)
        await sleep(0.1)  # Into the pass, which waits for the worker.
        await to_thread.run_sync(engine.terminate)
        with pytest.raises(EngineDeadError, match="shard 1 has not answered for 2 s"):
            await _read(stream)
        await wait_all_tasks_blocked()

    assert children() == []


async def test_an_engine_can_be_opened_again_after_its_worker_was_killed(
    divisible: Directory,
) -> None:
    messages = [{"role": "user", "content": "Hello."}]
    for _ in range(2):
        engine = _engine(divisible("llama"), 2)
        await engine.chat.completions.create(messages=messages, max_tokens=2)
        (worker,) = children()
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            await engine.chat.completions.create(messages=messages, max_tokens=2)
        engine.terminate()
        gc.collect()

        assert children() == []


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("aiomlc.no_such_module", "No module named"),
        ("tests.model.shards.killed_worker", "was killed by SIGKILL while it opened its model"),
        ("tests.model.shards.failing_worker", "cannot open its part of the model: OSError: gone"),
        ("tests.model.shards.failing_worker", "a last word"),
    ],
)
async def test_a_worker_that_cannot_start_is_a_load_error(
    divisible: Directory, monkeypatch: pytest.MonkeyPatch, module: str, reason: str
) -> None:
    before = shard_memory()
    monkeypatch.setattr("aiomlc.runtime.native.shard_processes.MODULE", module)

    with pytest.raises(ModelLoadError, match=reason) as caught:
        async with _engine(divisible("llama"), 2):
            pass

    assert caught.value.field == "tensor_parallel_shards"
    del caught
    gc.collect()
    assert children() == []
    assert shard_memory() == before


async def test_opening_can_be_cancelled_while_workers_open(
    divisible: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shard_memory()
    monkeypatch.setattr(
        "aiomlc.runtime.native.shard_processes.MODULE", "tests.model.shards.slow_shard_worker"
    )

    async def open_engine() -> None:
        async with _engine(divisible("llama"), 2):
            pass

    with fail_after(60):
        async with create_task_group() as tasks:
            tasks.start_soon(open_engine)
            while not children():  # noqa: ASYNC110 - a process, which tells nothing.
                await sleep(0.05)
            tasks.cancel_scope.cancel()

    gc.collect()
    assert children() == []
    assert shard_memory() == before


@pytest.mark.parametrize("end", ["killed", "exit"])
def test_workers_end_with_the_engines_process(divisible: Directory, end: str) -> None:
    module = "tests.model.shards.engine_process"
    command = [sys.executable, "-m", module, str(divisible("llama")), end]

    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert process.returncode == (-signal.SIGKILL if end == "killed" else 0), process.stderr
    assert process.stderr == ""
    assert has_ended(int(process.stdout))
