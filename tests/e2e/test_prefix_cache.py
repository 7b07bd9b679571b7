"""The bundled model with its prefix cache: the same answers, sooner."""

from __future__ import annotations

from typing import Any

from anyio import create_task_group

from aiomlc import AsyncMLCEngine, EngineConfig

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
