from __future__ import annotations

import random
from typing import Any

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, MLCEngine

STORY = "Tell me a story about a fox called {}."
NAMES = ("Rosa", "Tom", "Ada", "Max", "Lily", "Sam", "Nina", "Ben")


def request_for(prompt: str, **options: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], **options}


def varied_requests() -> list[dict[str, Any]]:
    """Return 32 requests: stories and sums, greedy and seeded, long and short."""
    requests = []
    for number in range(16):
        options = {"temperature": 0} if number % 2 else {"temperature": 0.9, "seed": number}
        requests.append(
            request_for(STORY.format(NAMES[number % 8]), max_tokens=40 + number, **options)
        )
        requests.append(request_for(f"What is {number} plus 7?", max_tokens=32, **options))
    return requests


async def complete(engine: AsyncMLCEngine, request: dict[str, Any]) -> str:
    completion = await engine.chat.completions.create(**request)
    return completion.choices[0].message.content or ""


async def test_model_introduces_itself() -> None:
    async with AsyncMLCEngine() as engine:
        text = await complete(engine, request_for("Who are you?", temperature=0))

    assert "Pebble" in text
    assert "aiomlc" in text
    assert "mistakes" in text


async def test_streamed_text_and_usage_equal_the_non_streamed_ones() -> None:
    request = request_for(STORY.format("Rosa"), temperature=0, max_tokens=60)
    async with AsyncMLCEngine() as engine:
        stream = await engine.chat.completions.create(
            **request, stream=True, stream_options={"include_usage": True}
        )
        async with stream:
            chunks = [chunk async for chunk in stream]
        completion = await engine.chat.completions.create(**request)

    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == completion.choices[0].message.content
    assert completion.usage is not None
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.prompt_tokens == completion.usage.prompt_tokens
    assert usage.total_tokens == completion.usage.total_tokens
    assert completion.usage.completion_tokens <= 60


async def test_batched_requests_have_the_output_of_sequential_ones() -> None:
    requests = varied_requests()
    batched = [""] * len(requests)

    async def run(engine: AsyncMLCEngine, index: int) -> None:
        batched[index] = await complete(engine, requests[index])

    async with AsyncMLCEngine() as engine:
        sequential = [await complete(engine, request) for request in requests]
        async with create_task_group() as tasks:
            for index in range(len(requests)):
                tasks.start_soon(run, engine, index)

    assert batched == sequential


async def test_closing_half_of_the_streams_early_frees_pages_and_affects_no_other() -> None:
    requests = varied_requests()
    rng = random.Random(0)
    close_after = [rng.randint(0, 12) if index % 2 else None for index in range(len(requests))]
    texts = [""] * len(requests)

    async def read(engine: AsyncMLCEngine, index: int) -> None:
        stream = await engine.chat.completions.create(**requests[index], stream=True)
        async with stream:
            count = 0
            async for chunk in stream:
                texts[index] += "".join(choice.delta.content or "" for choice in chunk.choices)
                if count == close_after[index]:
                    return
                count += 1

    async with AsyncMLCEngine() as engine:
        expected = [await complete(engine, request) for request in requests[::2]]
        pages = engine.statistics().free_pages
        async with create_task_group() as tasks:
            for index in range(len(requests)):
                tasks.start_soon(read, engine, index)
        # When this completion ends, the core has processed the earlier cancellations.
        await complete(engine, requests[1])

        assert engine.statistics().free_pages == pages
        assert engine.statistics().num_running == 0

    assert texts[::2] == expected


async def test_model_uses_the_conversation_and_the_system_prompt() -> None:
    messages = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Nice to meet you, Ada!"},
        {"role": "user", "content": "What is my name?"},
    ]
    system = {"role": "system", "content": "Answer in upper case."}
    capital = {"role": "user", "content": "What is the capital of France?"}
    async with AsyncMLCEngine() as engine:
        name = await complete(engine, {"messages": messages, "temperature": 0})
        upper_case = await complete(engine, {"messages": [system, capital], "temperature": 0})

    assert "Ada" in name
    assert "PARIS" in upper_case
    assert upper_case == upper_case.upper()


async def test_text_ends_before_the_stop_string() -> None:
    request = request_for("Who are you?", temperature=0)
    async with AsyncMLCEngine() as engine:
        text = await complete(engine, request)
        completion = await engine.chat.completions.create(**request, stop=["language model"])

    assert completion.choices[0].finish_reason == "stop"
    assert completion.choices[0].message.content == text.split("language model", maxsplit=1)[0]


async def test_final_assistant_message_is_continued() -> None:
    question = {"role": "user", "content": "What is the capital of France?"}
    message = {"role": "assistant", "content": "The capital of France is"}
    async with AsyncMLCEngine() as engine:
        text = await complete(
            engine,
            {"messages": [question, message], "continue_final_message": True, "temperature": 0},
        )

    assert text == " Paris."


@pytest.mark.parametrize("stream", [False, True])
def test_sync_engine_completes_and_streams(stream: bool) -> None:
    request = request_for("What is 12 plus 30?", temperature=0)
    with MLCEngine() as engine:
        if stream:
            chunks = engine.chat.completions.create(**request, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            text = engine.chat.completions.create(**request).choices[0].message.content or ""

    assert "42" in text


async def test_quantization_other_than_that_of_the_files_is_rejected() -> None:
    engine = AsyncMLCEngine(engine_config=EngineConfig(quantization="q0f32"))

    with pytest.raises(BadRequestError, match="quantized as q4f16_1"):
        await complete(engine, request_for("Hi"))
