"""`stream_options.continuous_usage_stats`: every chunk has the usage so far, as in vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.api.protocol.usage import Usage
from aiomlc.testing import FakeCore, fake_loader
from tests.unit.serve.asgi import CHAT, events_of, serving

pytestmark = pytest.mark.timeout(20)
OPTIONS = {"include_usage": True, "continuous_usage_stats": True}


async def _chunks(kind: str, options: dict[str, Any], stream_options: object) -> list[Any]:
    core = FakeCore(["abc", "defg", "hi"])
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        if kind == "chat":
            create: Any = engine.chat.completions.create
            options = {**CHAT, **options}
        else:
            create = engine.completions.create
            options = {"prompt": "Once", **options}

        stream = create(stream=True, stream_options=stream_options, **options)
        return [chunk async for chunk in stream]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("chat", {}),
        ("chat", {"n": 3}),
        ("chat", {"logprobs": True}),
        ("text", {}),
        ("text", {"n": 2, "echo": True, "logprobs": 0}),
        ("text", {"prompt": ["a", "bc"]}),
    ],
)
async def test_every_chunk_has_the_usage_so_far(kind: str, options: dict[str, Any]) -> None:
    chunks = await _chunks(kind, options, OPTIONS)
    usages: list[Usage] = [chunk.usage for chunk in chunks]

    assert all(usage is not None for usage in usages)
    assert all(usage.total_tokens > usage.completion_tokens for usage in usages)
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        counts = [getattr(usage, name) for usage in usages]
        assert counts == sorted(counts)
        assert counts[-1] == counts[-2], "the last chunk repeats the counts"
    assert chunks[-1].choices == []


@pytest.mark.parametrize("kind", ["chat", "text"])
async def test_without_include_usage_no_chunk_has_it(kind: str) -> None:
    for stream_options in ({"continuous_usage_stats": True}, {"continuous_usage_stats": False}):
        chunks = await _chunks(kind, {}, stream_options)
        assert all("usage" not in chunk.model_dump() for chunk in chunks)


async def test_the_server_sends_the_usage_of_each_chunk() -> None:
    async with serving(FakeCore(["abcdef"])) as (_, client):
        fields = {**CHAT, "stream": True, "stream_options": OPTIONS}
        response = await client.post("/v1/chat/completions", json=fields)

    counts = [event["usage"]["completion_tokens"] for event in events_of(response.text)[:-1]]
    assert counts == sorted(counts)
    assert (counts[-1], max(counts)) == (6, 6)
