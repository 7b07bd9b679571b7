"""The wire format of chat completions and their chunks."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, ChatCompletionChunk
from aiomlc.api.chat.aggregate import aggregate
from aiomlc.errors import RequestFailedError
from aiomlc.testing import FakeCore, fake_loader
from tests.unit.api.chat.serving import HELLO, serve

pytestmark = pytest.mark.timeout(20)


@pytest.mark.parametrize("options", [None, {"include_usage": True}])
async def test_unchecked_chunks_equal_validated_chunks(options: dict[str, bool] | None) -> None:
    async with serve(FakeCore(["Hi!"])) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, stream_options=options
        )
        chunks = [chunk async for chunk in stream]

    for chunk in chunks:
        validated = ChatCompletionChunk.model_validate(chunk.model_dump())
        assert chunk == validated
        assert chunk.model_dump_json() == validated.model_dump_json()
        assert chunk.model_fields_set == validated.model_fields_set - {
            "object",
            "system_fingerprint",
        }
        assert repr(chunk.model_copy(deep=True)) == repr(validated)


async def test_a_completion_has_openais_format() -> None:
    async with serve(FakeCore(["Hi!"])) as engine:
        completion = await engine.chat.completions.create(
            messages=HELLO, model="mine", request_id="chatcmpl-1"
        )

    assert completion.model_dump() == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": completion.created,
        "model": "mine",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi!", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 55,
            "completion_tokens": 3,
            "total_tokens": 58,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "system_fingerprint": None,
    }


async def test_a_stream_has_openais_format() -> None:
    core = FakeCore(["Hi"], hand_stepped=True)

    async with serve(core) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, request_id="chatcmpl-1"
        )
        chunks = []
        core.allow(1)
        async with stream:
            async for chunk in stream:
                chunks.append(chunk.model_dump())
                if chunk.choices[0].delta.content:
                    core.allow(1)

    common = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": chunks[0]["created"],
        "model": "fake",
        "system_fingerprint": None,
    }
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "H"}, None),
        ({"content": "i"}, None),
        ({}, "stop"),
    ]
    assert chunks == [
        common
        | {
            "choices": [
                {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
            ]
        }
        for delta, finish_reason in deltas
    ]


async def test_include_usage_ends_the_stream_with_a_chunk_of_the_usage_and_no_choices() -> None:
    async with serve(FakeCore(["Hi!"])) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk.model_dump() async for chunk in stream]

    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 55,
        "completion_tokens": 3,
        "total_tokens": 58,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_a_non_streamed_completion_equals_the_aggregated_stream() -> None:
    async with serve(FakeCore(["The same answer"])) as engine:
        options: dict[str, Any] = {"messages": HELLO, "request_id": "one"}
        completion = await engine.chat.completions.create(**options)
        stream = await engine.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
        aggregated = await aggregate(stream)

    assert aggregated.model_copy(update={"created": completion.created}) == completion


async def test_a_delta_without_text_has_empty_content_that_the_json_omits() -> None:
    async with AsyncMLCEngine(loader=fake_loader(replies=["Hi"])) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        chunks = [chunk async for chunk in stream]

    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices]
    assert "".join(text or "absent" for text in texts[1:-1]) == "Hi"
    assert (texts[0], texts[-1]) == ("", "")
    last = chunks[-1].choices[0]
    assert last.model_dump() == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }
    reparsed = type(last).model_validate(last.model_dump())
    assert reparsed.delta.content == ""
    assert pickle.loads(pickle.dumps(last)).model_dump() == last.model_dump()


async def test_aggregating_an_empty_stream_is_an_error() -> None:
    async with serve(FakeCore(["Hi"])) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        stream.close()
        with pytest.raises(RequestFailedError):
            await aggregate(stream)


async def test_receive_batch_returns_all_ready_chunks() -> None:
    core = FakeCore(["Hi"])

    async with serve(core) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        batches = []
        while batch := await stream.receive_batch():
            batches.append(batch)

    assert [chunk.usage is None for chunk in batches[-1]][-2:] == [True, False]
    assert await stream.receive_batch() == []


async def test_a_stream_has_the_request_id() -> None:
    async with serve(FakeCore(hand_stepped=True)) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True, request_id="r")
        stream.close()

    assert stream.request_id == "r"
    assert repr(stream) == "<ChatCompletionStream of <DeltaStream 'r' ended>>"
