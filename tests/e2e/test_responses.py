"""The Responses API with the bundled model."""

from __future__ import annotations

from aiomlc import AsyncMLCEngine


async def test_response_has_the_same_text_as_the_chat_completion() -> None:
    question = "What is 12 plus 30?"
    async with AsyncMLCEngine() as engine:
        chat = await engine.chat.completions.create(
            messages=[{"role": "user", "content": question}], temperature=0
        )
        response = await engine.responses.create(input=question, temperature=0)
        stream = await engine.responses.create(input=question, temperature=0, stream=True)
        events = [event async for event in stream]

    assert response.output_text == chat.choices[0].message.content
    assert "42" in response.output_text
    assert "".join(event.delta or "" for event in events) == response.output_text
