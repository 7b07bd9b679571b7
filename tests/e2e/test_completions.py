from __future__ import annotations

from typing import Any

from aiomlc import AsyncMLCEngine
from aiomlc.api.protocol.completion import CompletionChoice

PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


async def test_prompts_are_completed_and_streamed_with_the_same_text() -> None:
    questions = ["What is 12 plus 30?", "What is the capital of France?"]
    prompts = [PROMPT.format(question) for question in questions]
    async with AsyncMLCEngine() as engine:
        completion = await engine.completions.create(prompt=prompts, temperature=0)
        echoed = await engine.completions.create(
            prompt=prompts[0], temperature=0, max_tokens=3, echo=True
        )
        stream = await engine.completions.create(prompt=prompts, temperature=0, stream=True)
        texts = ["", ""]
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text

    assert "42" in completion.choices[0].text
    assert "Paris" in completion.choices[1].text
    assert texts == [choice.text for choice in completion.choices]
    assert echoed.choices[0].text.startswith(prompts[0])
    assert echoed.choices[0].finish_reason == "length"


async def test_best_of_returns_the_choices_with_the_highest_mean_logprob() -> None:
    options: dict[str, Any] = {"temperature": 1.5, "seed": 5, "max_tokens": 12}
    async with AsyncMLCEngine() as engine:
        prompt = PROMPT.format("Tell me a story.")
        candidates = await engine.completions.create(prompt=prompt, n=4, logprobs=0, **options)
        best = await engine.completions.create(prompt=prompt, best_of=4, n=2, **options)
        echoed = await engine.completions.create(
            prompt=prompt, best_of=4, n=2, echo=True, **options
        )

    def mean_logprob(choice: CompletionChoice) -> float:
        assert choice.logprobs is not None
        logprobs = [logprob for logprob in choice.logprobs.token_logprobs if logprob is not None]
        return sum(logprobs) / len(logprobs)

    ranked = sorted(candidates.choices, key=mean_logprob, reverse=True)
    assert len({choice.text for choice in ranked}) > 1
    assert [choice.text for choice in best.choices] == [choice.text for choice in ranked[:2]]
    texts = [choice.text.removeprefix(prompt) for choice in echoed.choices]
    assert texts == [choice.text for choice in ranked[:2]]
    assert {choice.logprobs for choice in echoed.choices} == {None}
    for choice in ranked:
        assert choice.logprobs is not None
        for offset, token in zip(choice.logprobs.text_offset, choice.logprobs.tokens, strict=True):
            assert choice.text[offset:].startswith(token) or offset == len(choice.text)
