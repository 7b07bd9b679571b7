"""The bundled model with its prefix cache: the same answers, sooner."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, MLCEngine

SYSTEM = {"role": "system", "content": "You are Pebble. Answer in one short sentence."}
QUESTIONS = ("Who are you?", "What is 3 plus 4?", "Tell me about a fox called Rosa.")


async def converse(engine: AsyncMLCEngine, **options: Any) -> tuple[list[str], list[int]]:  # noqa: ANN401
    """The answers of one conversation, and the cached tokens of each turn."""
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


async def test_a_conversation_is_the_same_with_the_cache_and_without() -> None:
    ways: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.9, "seed": 7}]
    together: list[list[str]] = [[]] * 8

    async def join(engine: AsyncMLCEngine, index: int) -> None:
        together[index], _ = await converse(engine, **ways[index % 2])

    async with AsyncMLCEngine(engine_config=EngineConfig(prefix_cache_mode="disable")) as engine:
        without = [await converse(engine, **way) for way in ways]
    async with AsyncMLCEngine() as engine:
        first = [await converse(engine, **way) for way in ways]
        again = [await converse(engine, **way) for way in ways]
        async with create_task_group() as tasks:
            for index in range(len(together)):
                tasks.start_soon(join, engine, index)
        statistics = engine.statistics()

    expected = [answers for answers, _ in without]
    assert [answers for answers, _ in first] == expected
    assert [answers for answers, _ in again] == expected
    assert together == expected * 4
    assert all(cached == [0, 0, 0] for _, cached in without)
    for (_, earlier), (_, later) in zip(first, again, strict=True):
        assert 0 < earlier[1] < earlier[2]  # A turn has the turns before it.
        assert all(b >= a for a, b in zip(earlier, later, strict=True))
    assert statistics.free_pages == statistics.total_pages
    assert statistics.num_running == 0


FILLERS = [f"Tell me a story about a fox called {name}." for name in ("Rosa", "Finn", "Ada")]


async def ask(engine: AsyncMLCEngine, *messages: dict[str, str], max_tokens: int = 40) -> Any:  # noqa: ANN401
    answer = await engine.chat.completions.create(
        messages=list(messages), max_tokens=max_tokens, temperature=0
    )
    assert answer.usage is not None
    return answer.choices[0].message.content, answer.usage.prompt_tokens_details.cached_tokens


async def test_a_pinned_prefix_is_computed_once_whatever_comes_between() -> None:
    question = {"role": "user", "content": QUESTIONS[0]}
    fillers = [{"role": "user", "content": text} for text in FILLERS]
    config = EngineConfig(prefix_cache_max_num_recycling_seqs=1)
    async with AsyncMLCEngine(engine_config=config) as engine:
        expected, _ = await ask(engine, SYSTEM, question)
        await engine.reset()
        with await engine.pin_prefix([SYSTEM]) as prefix:
            for filler in fillers:
                await ask(engine, filler)
            answer, cached = await ask(engine, SYSTEM, question)
            pinned = engine.statistics()

        for filler in fillers:
            await ask(engine, filler)
        _, cached_afterwards = await ask(engine, SYSTEM, question)
        statistics = engine.statistics()

    assert answer == expected
    assert cached >= prefix.num_tokens - 1  # The last token may be another one beside the next.
    assert cached_afterwards < prefix.num_tokens - 1
    assert (pinned.num_pinned, statistics.num_pinned) == (1, 0)
    assert pinned.free_pages == pinned.total_pages - -(-prefix.num_tokens // 16)
    assert statistics.free_pages == statistics.total_pages


async def test_nothing_is_pinned_without_a_prefix_cache() -> None:
    async with AsyncMLCEngine(engine_config=EngineConfig(prefix_cache_mode="disable")) as engine:
        with pytest.raises(BadRequestError, match="the prefix cache is off"):
            await engine.pin_prefix([SYSTEM])


def test_a_pin_is_gone_with_the_model() -> None:
    with MLCEngine() as engine:
        prefix = engine.pin_prefix([SYSTEM])
        engine.reload()
        second = engine.pin_prefix([SYSTEM])
        prefix.release()  # Of a model that is not there: it must not release the second.

        engine.chat.completions.create(
            messages=[{"role": "user", "content": QUESTIONS[0]}], max_tokens=4
        )
        assert engine.statistics().num_pinned == 1
        second.release()
