"""Answers of engines of tiny models, and what engines of every device promise about them."""

from __future__ import annotations

__all__ = (
    "OpenEngine",
    "chat_request",
    "check_bundled_model",
    "check_cancellation",
    "check_preemption",
    "check_refusal",
    "check_shared_prefixes",
    "complete",
    "complete_all",
)

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from anyio import CancelScope, create_task_group, fail_after, lowlevel

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, MLCEngine
from tests.model.device_logits import QUESTIONS

OpenEngine = Callable[..., AsyncMLCEngine]  #: Of a device, with fields of its config.


class Answer(NamedTuple):
    """The texts of a completion, and how many tokens of its prompt were cached."""

    texts: list[str]
    cached: int


def chat_request(content: str, max_tokens: int = 12, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the arguments of a chat completion, which is greedy unless there are options."""
    messages = [{"role": "user", "content": content}]
    return {"messages": messages, "max_tokens": max_tokens, **(options or {"temperature": 0})}


async def complete(engine: AsyncMLCEngine, request: dict[str, Any]) -> Answer:
    """Return the answer to a request."""
    completion = await engine.chat.completions.create(**request)
    assert completion.usage is not None
    cached = completion.usage.prompt_tokens_details.cached_tokens
    return Answer([choice.message.content or "" for choice in completion.choices], cached)


async def complete_all(engine: AsyncMLCEngine, requests: Sequence[dict[str, Any]]) -> list[Answer]:
    """Return the answers to requests that run at once."""
    answers = [Answer([], 0)] * len(requests)

    async def answer(index: int) -> None:
        answers[index] = await complete(engine, requests[index])

    async with create_task_group() as tasks:
        for index in range(len(requests)):
            tasks.start_soon(answer, index)
    return answers


async def check_shared_prefixes(open_engine: OpenEngine, device: str, min_cached: int) -> None:
    """Require the CPU's answers in batches and from the prefix cache, of that many tokens."""
    text = "Tell me about the sea. " * 6
    requests = [chat_request(text[: 20 * i]) for i in range(1, 7)] * 2
    async with open_engine("cpu", prefix_cache_mode="disable") as engine:
        native = [answer.texts for answer in await complete_all(engine, requests)]

    async with open_engine(device) as engine:
        sequential = [await complete(engine, request) for request in requests]
    async with open_engine(device) as engine:
        batched = await complete_all(engine, requests)
        statistics = engine.statistics()

    assert [answer.texts for answer in sequential] == native
    assert [answer.texts for answer in batched] == native
    assert sum(answer.cached for answer in sequential) > min_cached
    assert statistics.free_pages == statistics.total_pages


async def check_preemption(open_engine: OpenEngine, device: str) -> None:
    """Require the CPU's answers of sequences for which there are too few pages."""
    requests = [chat_request(f"{i} is a number.", max_tokens=100) for i in range(6)]
    async with open_engine("cpu") as engine:
        native = await complete_all(engine, requests)

    small = {"max_total_sequence_length": 400, "max_single_sequence_length": 200}
    async with open_engine(device, **small, prefix_cache_mode="disable") as engine:
        answers = await complete_all(engine, requests)
        statistics = engine.statistics()

    assert [answer.texts for answer in answers] == [answer.texts for answer in native]
    assert statistics.preemptions > 0
    assert statistics.free_pages == statistics.total_pages


async def check_cancellation(open_engine: OpenEngine, device: str) -> None:
    """Require that a cancelled request frees its pages, and that the next one is answered."""
    async with open_engine(device) as engine:
        with CancelScope() as scope:
            stream = await engine.chat.completions.create(
                **chat_request("Say something long.", max_tokens=400), stream=True
            )
            async with stream:
                async for _ in stream:
                    scope.cancel()
        answer = await complete(engine, chat_request("Are you there?"))
        with fail_after(10):
            while (statistics := engine.statistics()).num_running:
                await lowlevel.checkpoint()

    assert scope.cancelled_caught
    assert answer.texts[0]
    assert statistics.finished["abort"] == 1
    assert statistics.completion_tokens < 400
    assert statistics.free_pages == statistics.total_pages


def check_bundled_model(device: str) -> None:
    """Require the CPU's answers of the bundled model."""
    answers = []
    for each in ("cpu", device):
        with MLCEngine(device=each) as engine:
            completions = [
                engine.chat.completions.create(**chat_request(question, max_tokens=40))
                for question in QUESTIONS
            ]
        answers.append([completion.choices[0].message.content for completion in completions])

    assert answers[0] == answers[1]
    assert "Paris" in (answers[0][0] or "")


def check_refusal(
    directory: Path, device: str, options: dict[str, Any], problem: str, param: str
) -> None:
    """Require an error that names the device, the problem and `param`, and suggests the CPU."""
    config = EngineConfig(num_threads=2, **{"quantization": "q0f32", **options})
    with pytest.raises(BadRequestError, match=f"'{device}': .*{problem}.*'cpu'$") as caught:
        MLCEngine(directory, device=device, engine_config=config)

    assert caught.value.param == param
