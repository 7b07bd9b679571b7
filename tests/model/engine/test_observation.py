"""Statistics and traces of a real engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from anyio import create_task_group

from aiomlc import AsyncMLCEngine, EngineConfig

Directory = Callable[[str], Path]
MESSAGES = [{"role": "user", "content": "Say something."}]


async def test_statistics_of_two_requests_match_their_usage(
    model_cache: Path, tiny_directory: Directory
) -> None:
    config = EngineConfig(quantization="q4f16_1", num_threads=2)
    async with AsyncMLCEngine(tiny_directory("llama"), engine_config=config) as engine:
        for tokens in (5, 3):
            completion = await engine.chat.completions.create(
                messages=MESSAGES, max_tokens=tokens, extra_body={"ignore_eos": True}
            )

        statistics = engine.statistics()
        metrics = await engine.metrics()

    assert statistics.finished == {"length": 2, "stop": 0, "abort": 0, "error": 0, "timeout": 0}
    assert statistics.first_token_seconds.count == 2
    assert statistics.inter_token_seconds.count == 4 + 2
    assert statistics.request_completion_tokens.sum == 8
    assert statistics.batch_size.count == statistics.steps
    assert set(statistics.decode_steps) == {1}
    assert statistics.decode_steps[1].num_steps == 6
    last = metrics["last_finished_request"]
    assert completion.usage is not None
    assert completion.usage.extra == last
    assert last["completion_tokens"] == 3
    assert 0 < last["ttft_s"] < last["end_to_end_latency_s"]
    assert last["prefill_tokens"] < last["prompt_tokens"]


async def test_chunked_prefill_mode_separates_prefill_steps_and_keeps_the_output(
    model_cache: Path, tiny_directory: Directory
) -> None:
    texts_of: dict[str, list[str]] = {}
    has_mixed_steps: dict[str, bool] = {}

    async def serve(mode: Literal["hybrid", "chunked"]) -> None:
        config = EngineConfig(
            quantization="q4f16_1",
            num_threads=2,
            max_num_sequence=4,
            step_token_budget=8,
            prefill_mode=mode,
            enable_tracing=True,
        )
        texts = [""] * 8

        async def complete(index: int) -> None:
            completion = await engine.chat.completions.create(
                messages=[{"role": "user", "content": f"Say {index}." * index}],
                max_tokens=40 + index,  # So long that the next request comes meanwhile.
                seed=index,
                ignore_eos=True,
            )
            texts[index] = completion.choices[0].message.content or ""

        model = tiny_directory("llama")
        async with (
            AsyncMLCEngine(model, engine_config=config) as engine,
            create_task_group() as tasks,
        ):
            for index in range(8):
                tasks.start_soon(complete, index)

        events = engine.trace()["traceEvents"]
        steps = [event["args"] for event in events if event["name"] == "step"]
        has_mixed_steps[mode] = any(
            step["prefill_tokens"] and step["decode_tokens"] for step in steps
        )
        texts_of[mode] = texts

    await serve("hybrid")
    await serve("chunked")

    assert texts_of["chunked"] == texts_of["hybrid"]
    assert has_mixed_steps == {"hybrid": True, "chunked": False}


async def test_trace_nests_the_steps_of_a_sequence_in_its_slice(
    model_cache: Path, tiny_directory: Directory
) -> None:
    config = EngineConfig(quantization="q4f16_1", num_threads=2, enable_tracing=True)
    async with AsyncMLCEngine(tiny_directory("llama"), engine_config=config) as engine:
        await engine.chat.completions.create(
            messages=MESSAGES, max_tokens=5, extra_body={"ignore_eos": True}
        )

    events = [event for event in engine.trace()["traceEvents"] if event["tid"] == 1]
    (start,) = [event["ts"] for event in events if event["ph"] == "B"]
    (end,) = [event["ts"] for event in events if event["ph"] == "E"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [span["name"] for span in spans] == ["prefill"] + 4 * ["decode"]
    assert start <= spans[0]["ts"]
    for span, following in itertools.pairwise(spans):
        assert span["ts"] + span["dur"] <= following["ts"]
    assert spans[-1]["ts"] + spans[-1]["dur"] <= end
