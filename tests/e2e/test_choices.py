from __future__ import annotations

from typing import Any

from aiomlc import AsyncMLCEngine

ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a story about a fox called Rosa."}],
    "max_tokens": 40,
}


async def test_choices_are_what_requests_with_the_following_seeds_are() -> None:
    async with AsyncMLCEngine() as engine:
        before = engine.statistics()
        together = await engine.chat.completions.create(**ASKED, seed=3, n=4)
        after = engine.statistics()
    async with AsyncMLCEngine() as engine:
        alone = [
            await engine.chat.completions.create(**ASKED, seed=3 + choice) for choice in range(4)
        ]

    texts = [choice.message.content for choice in together.choices]
    assert texts == [answer.choices[0].message.content for answer in alone]
    assert len(set(texts)) > 1
    assert together.usage is not None
    # One prefill; each of the other choices computes the prompt's last token for its logits.
    assert after.prefill_tokens - before.prefill_tokens == together.usage.prompt_tokens + 3
