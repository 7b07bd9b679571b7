from __future__ import annotations

import random
from typing import Any

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, MLCEngine

STORY = "Tell me a story about a fox called {}."
NAMES = ("Rosa", "Tom", "Ada", "Max", "Lily", "Sam", "Nina", "Ben")


def asking(prompt: str, **options: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], **options}


def varied_requests() -> list[dict[str, Any]]:
    """Thirty-two requests: stories and sums, greedy and seeded, long and short."""
    requests = []
    for number in range(16):
        options = {"temperature": 0} if number % 2 else {"temperature": 0.9, "seed": number}
        requests.append(asking(STORY.format(NAMES[number % 8]), max_tokens=40 + number, **options))
        requests.append(asking(f"What is {number} plus 7?", max_tokens=32, **options))
    return requests


async def answer(engine: AsyncMLCEngine, request: dict[str, Any]) -> str:
    completion = await engine.chat.completions.create(**request)
    return completion.choices[0].message.content or ""


async def test_it_says_who_it_is() -> None:
    async with AsyncMLCEngine() as engine:
        text = await answer(engine, asking("Who are you?", temperature=0))

    assert "Pebble" in text
    assert "aiomlc" in text
    assert "mistakes" in text


async def test_a_streamed_answer_is_the_whole_answer() -> None:
    request = asking(STORY.format("Rosa"), temperature=0, max_tokens=60)
    async with AsyncMLCEngine() as engine:
        stream = await engine.chat.completions.create(
            **request, stream=True, stream_options={"include_usage": True}
        )
        async with stream:
            chunks = [chunk async for chunk in stream]
        whole = await engine.chat.completions.create(**request)

    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.usage is not None
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.total_tokens == whole.usage.total_tokens
    assert whole.usage.completion_tokens <= 60


async def test_thirty_two_answers_at_once_are_what_each_is_alone() -> None:
    requests = varied_requests()
    together = [""] * len(requests)

    async def fetch(engine: AsyncMLCEngine, index: int) -> None:
        together[index] = await answer(engine, requests[index])

    async with AsyncMLCEngine() as engine:
        alone = [await answer(engine, request) for request in requests]
        async with create_task_group() as tasks:
            for index in range(len(requests)):
                tasks.start_soon(fetch, engine, index)

    assert together == alone


async def test_leaving_half_of_the_streams_early_frees_every_page_and_disturbs_no_other() -> None:
    requests = varied_requests()
    chance = random.Random(0)
    leave_after = [chance.randint(0, 12) if index % 2 else None for index in range(len(requests))]
    texts = [""] * len(requests)

    async def read(engine: AsyncMLCEngine, index: int) -> None:
        stream = await engine.chat.completions.create(**requests[index], stream=True)
        async with stream:
            count = 0
            async for chunk in stream:
                texts[index] += "".join(choice.delta.content or "" for choice in chunk.choices)
                if count == leave_after[index]:
                    return
                count += 1

    async with AsyncMLCEngine() as engine:
        alone = [await answer(engine, request) for request in requests[::2]]
        pages = engine.statistics().free_pages
        async with create_task_group() as tasks:
            for index in range(len(requests)):
                tasks.start_soon(read, engine, index)
        # An answer from first to last: by then the core has taken in what was cancelled before it.
        await answer(engine, requests[1])

        assert engine.statistics().free_pages == pages
        assert engine.statistics().num_running == 0

    assert texts[::2] == alone


async def test_it_remembers_the_conversation_and_follows_the_system_prompt() -> None:
    messages = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Nice to meet you, Ada!"},
        {"role": "user", "content": "What is my name?"},
    ]
    system = {"role": "system", "content": "Answer in upper case."}
    capital = {"role": "user", "content": "What is the capital of France?"}
    async with AsyncMLCEngine() as engine:
        name = await answer(engine, {"messages": messages, "temperature": 0})
        shouted = await answer(engine, {"messages": [system, capital], "temperature": 0})

    assert "Ada" in name
    assert "PARIS" in shouted
    assert shouted == shouted.upper()


async def test_a_stop_string_ends_the_answer_before_it() -> None:
    request = asking("Who are you?", temperature=0)
    async with AsyncMLCEngine() as engine:
        whole = await answer(engine, request)
        completion = await engine.chat.completions.create(**request, stop=["language model"])

    assert completion.choices[0].finish_reason == "stop"
    assert completion.choices[0].message.content == whole.split("language model", maxsplit=1)[0]


async def test_an_answer_that_was_begun_is_continued() -> None:
    question = {"role": "user", "content": "What is the capital of France?"}
    begun = {"role": "assistant", "content": "The capital of France is"}
    async with AsyncMLCEngine() as engine:
        text = await answer(
            engine,
            {"messages": [question, begun], "continue_final_message": True, "temperature": 0},
        )

    assert text == " Paris."


@pytest.mark.parametrize("stream", [False, True])
def test_the_blocking_engine_gives_the_same_answer(stream: bool) -> None:
    request = asking("What is 12 plus 30?", temperature=0)
    with MLCEngine() as engine:
        if stream:
            chunks = engine.chat.completions.create(**request, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            text = engine.chat.completions.create(**request).choices[0].message.content or ""

    assert "42" in text


async def test_a_quantization_that_the_files_do_not_have_is_refused() -> None:
    engine = AsyncMLCEngine(engine_config=EngineConfig(quantization="q0f32"))

    with pytest.raises(BadRequestError, match="quantized as q4f16_1"):
        await answer(engine, asking("Hi"))
