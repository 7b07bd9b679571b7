"""Prompt logprobs with the bundled model, through the native core."""

from __future__ import annotations

from typing import Any

from anyio import create_task_group

from aiomlc import AsyncMLCEngine, Completion

PROMPT = "<|im_start|>user\nWhat is 12 plus 30?<|im_end|>\n<|im_start|>assistant\n"
SCORE_OPTIONS: dict[str, Any] = {"prompt_logprobs": 2, "max_tokens": 4, "temperature": 0}


def logprobs_of(completion: Completion, choice: int = 0) -> list[float | None]:
    entries = completion.choices[choice].prompt_logprobs or []
    return [None if entry is None else entry.logprob for entry in entries]


async def test_cached_prompt_has_the_same_logprobs_in_the_first_chunk() -> None:
    async with AsyncMLCEngine() as engine:
        uncached = await engine.completions.create(prompt=PROMPT, **SCORE_OPTIONS)
        cached = await engine.completions.create(prompt=PROMPT, n=3, **SCORE_OPTIONS)
        stream = await engine.completions.create(prompt=PROMPT, n=3, stream=True, **SCORE_OPTIONS)
        first = await anext(stream)
        stream.close()
        plain = await engine.completions.create(prompt=PROMPT, max_tokens=4, temperature=0)

    assert uncached.usage is not None
    assert len(logprobs_of(uncached)) == uncached.usage.prompt_tokens
    assert [logprobs_of(cached, index) for index in range(3)] == [logprobs_of(uncached)] * 3
    assert first.choices[0].index == 0
    assert logprobs_of(first) == logprobs_of(uncached)
    assert plain.usage is not None
    assert plain.usage.prompt_tokens_details is not None
    assert plain.usage.prompt_tokens_details.cached_tokens == plain.usage.prompt_tokens - 1
    assert plain.choices[0].text == uncached.choices[0].text


async def test_batching_does_not_change_prompt_logprobs() -> None:
    texts = [PROMPT + "Hello there! " * count for count in range(1, 40, 4)]
    batched: dict[str, Completion] = {}

    async with AsyncMLCEngine() as engine:

        async def complete(text: str) -> None:
            batched[text] = await engine.completions.create(prompt=text, **SCORE_OPTIONS)

        async with create_task_group() as tasks:
            for text in texts:
                tasks.start_soon(complete, text)
                tasks.start_soon(complete, text + "!")

        await engine.reset()
        for text in texts:
            single = await engine.completions.create(prompt=text, **SCORE_OPTIONS)
            assert single.choices == batched[text].choices


async def test_echo_returns_text_and_tokens_of_prompt_and_completion() -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.completions.create(
            prompt=PROMPT, echo=True, logprobs=1, max_tokens=5, temperature=0
        )

    (choice,) = completion.choices
    assert choice.logprobs is not None
    assert completion.usage is not None
    assert len(choice.logprobs.tokens) == completion.usage.prompt_tokens + 5
    assert choice.logprobs.token_logprobs[0] is None
    assert choice.text.startswith(PROMPT)
    for offset, token in zip(
        choice.logprobs.text_offset[-5:], choice.logprobs.tokens[-5:], strict=True
    ):
        assert choice.text[offset:].startswith(token)


async def test_the_offsets_of_an_echoed_prompt_count_its_special_tokens() -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.completions.create(
            prompt="<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
            echo=True,
            logprobs=0,
            max_tokens=4,
            temperature=0,
        )

    (choice,) = completion.choices
    assert choice.logprobs is not None
    offsets, tokens = choice.logprobs.text_offset, choice.logprobs.tokens
    assert tokens[0] == "<|im_start|>"
    for offset, token in zip(offsets, tokens, strict=True):
        assert choice.text.startswith(token, offset)
