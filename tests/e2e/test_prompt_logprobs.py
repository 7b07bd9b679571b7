"""Log-probabilities of prompts on the bundled model, through the native core."""

from __future__ import annotations

from typing import Any

from anyio import create_task_group

from aiomlc import AsyncMLCEngine, Completion

PROMPT = "<|im_start|>user\nWhat is 12 plus 30?<|im_end|>\n<|im_start|>assistant\n"
SCORED: dict[str, Any] = {"prompt_logprobs": 2, "max_tokens": 4, "temperature": 0}


def logprobs_of(answer: Completion, choice: int = 0) -> list[float | None]:
    told = answer.choices[choice].prompt_logprobs or []
    return [None if entry is None else entry.logprob for entry in told]


async def test_a_prompt_in_the_cache_is_scored_alike_and_first() -> None:
    async with AsyncMLCEngine() as engine:
        fresh = await engine.completions.create(prompt=PROMPT, **SCORED)
        kept = await engine.completions.create(prompt=PROMPT, n=3, **SCORED)
        stream = await engine.completions.create(prompt=PROMPT, n=3, stream=True, **SCORED)
        first = await anext(stream)
        stream.close()
        plain = await engine.completions.create(prompt=PROMPT, max_tokens=4, temperature=0)

    assert fresh.usage is not None
    assert len(logprobs_of(fresh)) == fresh.usage.prompt_tokens
    assert [logprobs_of(kept, index) for index in range(3)] == [logprobs_of(fresh)] * 3
    assert first.choices[0].index == 0
    assert logprobs_of(first) == logprobs_of(fresh)
    assert plain.usage is not None
    assert plain.usage.prompt_tokens_details is not None
    assert plain.usage.prompt_tokens_details.cached_tokens == plain.usage.prompt_tokens - 1
    assert plain.choices[0].text == fresh.choices[0].text


async def test_company_changes_no_bit_of_them() -> None:
    texts = [PROMPT + "Hello there! " * count for count in range(1, 40, 4)]
    together: dict[str, Completion] = {}

    async with AsyncMLCEngine() as engine:

        async def ask(text: str) -> None:
            together[text] = await engine.completions.create(prompt=text, **SCORED)

        async with create_task_group() as tasks:
            for text in texts:
                tasks.start_soon(ask, text)
                tasks.start_soon(ask, text + "!")

        await engine.reset()
        for text in texts:
            alone = await engine.completions.create(prompt=text, **SCORED)
            assert alone.choices == together[text].choices


async def test_an_echo_spells_the_prompt_and_the_answer() -> None:
    async with AsyncMLCEngine() as engine:
        answer = await engine.completions.create(
            prompt=PROMPT, echo=True, logprobs=1, max_tokens=5, temperature=0
        )

    (choice,) = answer.choices
    assert choice.logprobs is not None
    assert answer.usage is not None
    assert len(choice.logprobs.tokens) == answer.usage.prompt_tokens + 5
    assert choice.logprobs.token_logprobs[0] is None
    assert choice.text.startswith(PROMPT)
    for offset, token in zip(
        choice.logprobs.text_offset[-5:], choice.logprobs.tokens[-5:], strict=True
    ):
        assert choice.text[offset:].startswith(token)
