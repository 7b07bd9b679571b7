"""The prefix cache and pinned prefixes with the bundled model."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, MLCEngine

SYSTEM = {"role": "system", "content": "You are Pebble. Answer in one short sentence."}
QUESTIONS = ("Who are you?", "What is 3 plus 4?", "Tell me about a fox called Rosa.")


async def converse(engine: AsyncMLCEngine, **options: Any) -> tuple[list[str], list[int]]:  # noqa: ANN401
    """Return the answers of one conversation, and the cached tokens of each turn."""
    messages: list[dict[str, str]] = [SYSTEM]
    answers, cached = [], []
    for question in QUESTIONS:
        messages = [*messages, {"role": "user", "content": question}]
        completion = await engine.chat.completions.create(
            messages=messages, max_tokens=40, **options
        )
        answers.append(completion.choices[0].message.content or "")
        messages = [*messages, {"role": "assistant", "content": answers[-1]}]
        assert completion.usage is not None
        cached.append(completion.usage.prompt_tokens_details.cached_tokens)

    return answers, cached


async def test_conversation_is_the_same_with_and_without_the_cache() -> None:
    samplings: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.9, "seed": 7}]
    batched: list[list[str]] = [[]] * 8

    async def run(engine: AsyncMLCEngine, index: int) -> None:
        batched[index], _ = await converse(engine, **samplings[index % 2])

    async with AsyncMLCEngine(engine_config=EngineConfig(prefix_cache_mode="disable")) as engine:
        without = [await converse(engine, **sampling) for sampling in samplings]
    async with AsyncMLCEngine() as engine:
        first = [await converse(engine, **sampling) for sampling in samplings]
        again = [await converse(engine, **sampling) for sampling in samplings]
        async with create_task_group() as tasks:
            for index in range(len(batched)):
                tasks.start_soon(run, engine, index)
        statistics = engine.statistics()

    expected = [answers for answers, _ in without]
    assert [answers for answers, _ in first] == expected
    assert [answers for answers, _ in again] == expected
    assert batched == expected * 4
    assert all(cached == [0, 0, 0] for _, cached in without)
    for (_, earlier), (_, later) in zip(first, again, strict=True):
        assert 0 < earlier[1] < earlier[2]  # Each turn reuses the earlier ones.
        assert all(b >= a for a, b in zip(earlier, later, strict=True))
    assert statistics.free_pages == statistics.total_pages
    assert statistics.num_running == 0


FILLERS = [f"Tell me a story about a fox called {name}." for name in ("Rosa", "Finn", "Ada")]


async def complete(engine: AsyncMLCEngine, *messages: dict[str, str], max_tokens: int = 40) -> Any:  # noqa: ANN401
    completion = await engine.chat.completions.create(
        messages=list(messages), max_tokens=max_tokens, temperature=0
    )
    assert completion.usage is not None
    return completion.choices[
        0
    ].message.content, completion.usage.prompt_tokens_details.cached_tokens


async def test_pinned_prefix_stays_cached_despite_other_requests() -> None:
    question = {"role": "user", "content": QUESTIONS[0]}
    fillers = [{"role": "user", "content": text} for text in FILLERS]
    config = EngineConfig(prefix_cache_max_num_recycling_seqs=1)
    async with AsyncMLCEngine(engine_config=config) as engine:
        expected, _ = await complete(engine, SYSTEM, question)
        await engine.reset()
        with await engine.pin_prefix([SYSTEM]) as prefix:
            for filler in fillers:
                await complete(engine, filler)
            answer, cached = await complete(engine, SYSTEM, question)
            pinned = engine.statistics()

        for filler in fillers:
            await complete(engine, filler)
        _, cached_afterwards = await complete(engine, SYSTEM, question)
        statistics = engine.statistics()

    assert answer == expected
    assert cached >= prefix.num_tokens - 1  # Its last token may merge with the following text.
    assert cached_afterwards < prefix.num_tokens - 1
    assert (pinned.num_pinned, statistics.num_pinned) == (1, 0)
    assert pinned.free_pages == pinned.total_pages - -(-prefix.num_tokens // 16)
    assert statistics.free_pages == statistics.total_pages


async def test_pin_without_a_prefix_cache_is_rejected() -> None:
    async with AsyncMLCEngine(engine_config=EngineConfig(prefix_cache_mode="disable")) as engine:
        with pytest.raises(BadRequestError, match="while the prefix cache is disabled"):
            await engine.pin_prefix([SYSTEM])


def test_reload_drops_pinned_prefixes() -> None:
    with MLCEngine() as engine:
        prefix = engine.pin_prefix([SYSTEM])
        engine.reload()
        second = engine.pin_prefix([SYSTEM])
        prefix.release()  # Its model was unloaded, so it must not release the second.

        engine.chat.completions.create(
            messages=[{"role": "user", "content": QUESTIONS[0]}], max_tokens=4
        )
        assert engine.statistics().num_pinned == 1
        second.release()
