"""Sampling options with the bundled model, through the native core."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, BadRequestError, ChatCompletion
from aiomlc.api.protocol.chat import TokenLogprob
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

STORY = "Tell me a story about a fox called Rosa."


@pytest.fixture
def tokenizer(bundled_model: Path) -> Tokenizer:
    return Tokenizer(bundled_model / "tokenizer.json")


def request_for(prompt: str = STORY, **options: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], "temperature": 0, **options}


def entries(completion: ChatCompletion) -> list[TokenLogprob]:
    assert completion.choices[0].logprobs is not None
    return completion.choices[0].logprobs.content


def text_of(completion: ChatCompletion) -> str:
    return completion.choices[0].message.content or ""


def joined(tokens: list[TokenLogprob]) -> str:
    return b"".join(bytes(token.bytes or ()) for token in tokens).decode()


async def test_greedy_token_is_the_most_likely_one() -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(
            **request_for(max_tokens=40, logprobs=True, top_logprobs=20)
        )

    tokens = entries(completion)
    assert len(tokens) == 40
    assert joined(tokens) == text_of(completion)
    for token in tokens:
        logprobs = [other.logprob for other in token.top_logprobs]
        assert len(logprobs) == 20
        assert logprobs == sorted(logprobs, reverse=True)
        assert (token.token, token.logprob) == (token.top_logprobs[0].token, logprobs[0])
        assert sum(map(math.exp, logprobs)) <= 1 + 1e-5


async def test_top_p_0_keeps_only_the_most_likely_token() -> None:
    async with AsyncMLCEngine() as engine:
        create = engine.chat.completions.create
        greedy = await create(**request_for(max_tokens=20))
        nucleus = await create(**request_for(max_tokens=20, temperature=2, top_p=0, seed=1))

    assert text_of(nucleus) == text_of(greedy)


async def test_streamed_logprobs_equal_the_non_streamed_ones_up_to_a_stop_string() -> None:
    request = request_for("Who are you?", logprobs=True, top_logprobs=2)
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(**request)
        stream = await engine.chat.completions.create(
            **request, stop=["language model"], stream=True
        )
        choices = [chunk.choices[0] async for chunk in stream]

    streamed = [token for choice in choices if choice.logprobs for token in choice.logprobs.content]
    text = "".join(choice.delta.content or "" for choice in choices)
    assert streamed == entries(completion)[: len(streamed)]
    assert joined(streamed).startswith(f"{text}language model"), (
        "the logprobs include the tokens of the stop string"
    )


async def test_logprobs_do_not_depend_on_temperature_logit_bias_or_batching(
    tokenizer: Tokenizer,
) -> None:
    request = request_for(max_tokens=1, logprobs=True, top_logprobs=5)
    forced = request | {"logit_bias": {tokenizer.encode("7")[0]: 100}, "temperature": 1.5}
    completions: dict[int, ChatCompletion] = {}

    async def complete(engine: AsyncMLCEngine, number: int) -> None:
        options = forced if number % 2 else request_for(max_tokens=20, frequency_penalty=1)
        completions[number] = await engine.chat.completions.create(**options)

    async with AsyncMLCEngine() as engine:
        alone = await engine.chat.completions.create(**request)
        async with create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(complete, engine, number)

    assert {text_of(completions[number]) for number in range(1, 8, 2)} == {"7"}
    for number in range(1, 8, 2):
        assert entries(completions[number])[0].top_logprobs == entries(alone)[0].top_logprobs
    assert len({text_of(completions[number]) for number in range(0, 8, 2)}) == 1


async def test_logit_bias_of_minus_100_bans_a_token(tokenizer: Tokenizer) -> None:
    async with AsyncMLCEngine() as engine:
        first = await engine.chat.completions.create(**request_for(max_tokens=1, logprobs=True))
        banned = tokenizer.encode(text_of(first))
        completion = await engine.chat.completions.create(
            **request_for(max_tokens=30, logit_bias=dict.fromkeys(banned, -100))
        )
        with pytest.raises(BadRequestError, match="logit_bias"):
            await engine.chat.completions.create(**request_for(logit_bias={10**10: 1}))

    assert len(banned) == 1
    assert not text_of(completion).startswith(text_of(first))
    assert banned[0] not in tokenizer.encode(text_of(completion))


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"frequency_penalty": 2}, {"frequency_penalty": -2}),
        ({"presence_penalty": 2}, {"presence_penalty": -2}),
        ({"repetition_penalty": 2.0}, {"repetition_penalty": 0.5}),
    ],
)
async def test_penalties_change_the_number_of_distinct_tokens(
    less: dict[str, float], more: dict[str, float]
) -> None:
    async def count_distinct(engine: AsyncMLCEngine, options: dict[str, float]) -> int:
        request = request_for(max_tokens=60, min_tokens=60, logprobs=True) | options
        completion = await engine.chat.completions.create(**request)
        return len({token.token for token in entries(completion)})

    async with AsyncMLCEngine() as engine:
        assert await count_distinct(engine, less) > await count_distinct(engine, more)


async def test_min_tokens_prolongs_the_output() -> None:
    request = request_for("What is 2 plus 3?", logprobs=True)
    async with AsyncMLCEngine() as engine:
        short = await engine.chat.completions.create(**request)
        longer = await engine.chat.completions.create(**request, min_tokens=40)
        endless = await engine.chat.completions.create(**request, ignore_eos=True, max_tokens=50)

    assert short.choices[0].finish_reason == "stop"
    assert len(entries(short)) < 40 <= len(entries(longer))
    assert text_of(longer).startswith(text_of(short))
    assert endless.usage is not None
    assert endless.usage.completion_tokens == 50
    assert None in [token.bytes for token in entries(endless)], (
        "the end-of-sequence token has an entry as well"
    )
