"""Whether an answer of a SentencePiece model starts with the space of its first token."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, GenerationConfig, SyncMLCEngine, TextData
from aiomlc.api.session.loader import Loader
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
REPLY = "  Sure, sure"


def sentence_piece_loader(core: FakeCore) -> Loader:
    """Return a loader of a model whose tokenizer drops the space before the first token."""
    load_model = fake_loader(core)

    async def load(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        model: Any = await load_model(*args, **options)
        model.tokenizer.strips_leading_space = True
        return model

    return load


async def test_a_chat_answer_starts_without_the_space() -> None:
    async with AsyncMLCEngine(loader=sentence_piece_loader(FakeCore([REPLY]))) as engine:
        hello = [{"role": "user", "content": "Hello"}]
        answer = await engine.chat.completions.create(messages=hello, n=2)
        async with await engine.chat.completions.create(messages=hello, stream=True) as stream:
            chunks = [chunk.choices[0].delta.content async for chunk in stream]
        continued = [*hello, {"role": "assistant", "content": "Yes,"}]
        rest = await engine.chat.completions.create(messages=continued, continue_final_message=True)

    assert [choice.message.content for choice in answer.choices] == [REPLY[1:]] * 2
    assert "".join(filter(None, chunks)) == REPLY[1:]
    assert rest.choices[0].message.content == REPLY


async def test_a_text_completion_and_a_token_stream_keep_the_space() -> None:
    async with AsyncMLCEngine(loader=sentence_piece_loader(FakeCore([REPLY]))) as engine:
        completion = await engine.completions.create(prompt="Hello")
        async with engine.generate("Hello") as stream:
            text = "".join([delta.text async for delta in stream])

    assert (completion.choices[0].text, text) == (REPLY, REPLY)


def test_the_step_engine_strips_the_space() -> None:
    outputs: list[str] = []
    with SyncMLCEngine(loader=sentence_piece_loader(FakeCore([REPLY]))) as engine:
        texts, _ = engine.generate(["a", "b"], GenerationConfig(n=2))
        engine.request_stream_callback = lambda batch: outputs.extend(
            output.delta_text for item in batch for output in item.unpack()[1]
        )
        engine.add_request(engine.create_request("x", TextData("Hello")))
        while engine.step():
            pass

    assert texts == [[REPLY[1:]] * 2] * 2
    assert "".join(outputs) == REPLY[1:]


async def test_other_tokenizers_keep_the_space() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore([REPLY]))) as engine:
        hello = [{"role": "user", "content": "Hello"}]
        answer = await engine.chat.completions.create(messages=hello)

    assert answer.choices[0].message.content == REPLY
