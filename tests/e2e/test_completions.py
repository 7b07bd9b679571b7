from __future__ import annotations

from aiomlc import AsyncMLCEngine

PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


async def test_texts_and_token_ids_are_completed_and_streamed_alike() -> None:
    questions = ["What is 12 plus 30?", "What is the capital of France?"]
    prompts = [PROMPT.format(question) for question in questions]
    async with AsyncMLCEngine() as engine:
        whole = await engine.completions.create(prompt=prompts, temperature=0)
        cut = await engine.completions.create(
            prompt=prompts[0], temperature=0, max_tokens=3, echo=True
        )
        stream = await engine.completions.create(prompt=prompts, temperature=0, stream=True)
        texts = ["", ""]
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text

    assert "42" in whole.choices[0].text
    assert "Paris" in whole.choices[1].text
    assert texts == [choice.text for choice in whole.choices]
    assert cut.choices[0].text.startswith(prompts[0])
    assert cut.choices[0].finish_reason == "length"
