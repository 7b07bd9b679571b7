"""The real client's types accept what we answer, and dump it to the same JSON."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeCore, fake_loader

openai_types = pytest.importorskip("openai.types")
chat_types = pytest.importorskip("openai.types.chat")

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = 'So <tool_call>{"name": "f", "arguments": {"a": "b"}}</tool_call>'
REQUESTS: list[dict[str, Any]] = [
    {},
    {"tools": TOOLS},
    {"tools": TOOLS, "tool_choice": "none"},
    {"max_tokens": 2},
]


def assert_same(ours: Any, theirs: Any) -> None:  # noqa: ANN401
    """Strictly valid, and every field that the client shows is a field of ours."""
    dump = ours.model_dump(mode="json")
    parsed = theirs.model_validate_json(ours.model_dump_json(), strict=True)

    assert parsed.model_dump(mode="json", exclude_unset=True) == dump
    assert not (parsed.model_extra)
    for choice in parsed.choices:
        assert not (choice.model_extra)


@pytest.mark.parametrize("reply", ["Hi!", CALL, CALL + CALL])
@pytest.mark.parametrize("options", REQUESTS)
async def test_chat_completions_and_chunks(options: dict[str, Any], reply: str) -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore([reply]))) as engine:
        whole = await engine.chat.completions.create(messages=HELLO, **options)
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, stream_options={"include_usage": True}, **options
        )
        chunks = [chunk async for chunk in stream]

    assert_same(whole, chat_types.ChatCompletion)
    for chunk in chunks:
        assert_same(chunk, chat_types.ChatCompletionChunk)


@pytest.mark.parametrize("options", [{}, {"echo": True}, {"max_tokens": 2}])
async def test_completions(options: dict[str, Any]) -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine:
        whole = await engine.completions.create(prompt=["a", "b"], **options)

    assert_same(whole, openai_types.Completion)
