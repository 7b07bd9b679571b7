from __future__ import annotations

from typing import Any

from aiomlc import AsyncMLCEngine

REQUEST: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a story about a fox called Rosa."}],
    "max_tokens": 40,
}


async def test_choices_equal_requests_with_consecutive_seeds() -> None:
    async with AsyncMLCEngine() as engine:
        before = engine.statistics()
        completion = await engine.chat.completions.create(**REQUEST, seed=3, n=4)
        after = engine.statistics()
    async with AsyncMLCEngine() as engine:
        separate = [
            await engine.chat.completions.create(**REQUEST, seed=3 + choice) for choice in range(4)
        ]

    texts = [choice.message.content for choice in completion.choices]
    assert texts == [single.choices[0].message.content for single in separate]
    assert len(set(texts)) > 1
    assert completion.usage is not None
    # One prefill, and for each of the other choices the last prompt token for its logits.
    assert after.prefill_tokens - before.prefill_tokens == completion.usage.prompt_tokens + 3
