"""Responses from the bundled model."""

from __future__ import annotations

from aiomlc import AsyncMLCEngine


async def test_a_response_says_what_chat_says() -> None:
    question = "What is 12 plus 30?"
    async with AsyncMLCEngine() as engine:
        chat = await engine.chat.completions.create(
            messages=[{"role": "user", "content": question}], temperature=0
        )
        answer = await engine.responses.create(input=question, temperature=0)
        stream = await engine.responses.create(input=question, temperature=0, stream=True)
        events = [event async for event in stream]

    assert answer.output_text == chat.choices[0].message.content
    assert "42" in answer.output_text
    assert "".join(event.delta or "" for event in events) == answer.output_text
