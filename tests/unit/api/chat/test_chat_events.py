"""Event streams of chat completions."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, MLCEngine
from aiomlc.api.chat.events import ChatEvent
from aiomlc.errors import BadRequestError, RequestFailedError
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
WITH_TOOLS: dict[str, Any] = {"messages": HELLO, "tools": TOOLS}


def check(events: list[ChatEvent]) -> None:
    """Check the events of the content `So` and two tool calls."""
    deltas = [event for event in events if event.type == "content.delta"]
    argument_deltas = [
        event for event in events if event.type == "tool_calls.function.arguments.delta"
    ]
    calls = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    done = [event for event in events if event.type == "content.done"]
    assert "".join(event.delta for event in deltas) == deltas[-1].snapshot == "So"
    assert [event.content for event in done] == ["So"]
    assert [(event.index, event.name, event.arguments) for event in calls] == [
        (0, "f", '{"a": 1}'),
        (1, "f", '{"a": 1}'),
    ]
    for index in range(2):
        of_call = [event for event in argument_deltas if event.index == index]
        assert "".join(event.arguments_delta for event in of_call) == of_call[-1].arguments
        assert of_call[-1].arguments == '{"a": 1}'
    assert events[0].type == "chunk"


async def test_events_carry_deltas_and_snapshots() -> None:
    core = FakeCore([f"So {CALL}{CALL}"])
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        async with engine.chat.completions.stream(**WITH_TOOLS) as events:
            received = [event async for event in events]
            final = await events.get_final_completion()
        completion = await engine.chat.completions.create(**WITH_TOOLS)

    check(received)
    assert final.usage == completion.usage
    assert final.choices[0].message.content == "So"
    assert final.choices[0].finish_reason == "tool_calls"


def test_the_blocking_engine_yields_the_same_events() -> None:
    with MLCEngine(loader=fake_loader(replies=[f"So {CALL}{CALL}"])) as engine:
        with engine.chat.completions.stream(**WITH_TOOLS) as events:
            received = list(events)
        with engine.chat.completions.stream(**WITH_TOOLS) as events:
            final = events.get_final_completion()

    check(received)
    assert final.choices[0].message.content == "So"


async def test_leaving_the_scope_early_cancels_the_request() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        core.allow(1)
        async with engine.chat.completions.stream(messages=HELLO) as events:
            await events.__anext__()

        assert core.cancelled == [1]
        with pytest.raises(RequestFailedError):
            await events.get_final_completion()


async def test_close_can_be_awaited() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        core.allow(1)
        async with engine.chat.completions.stream(messages=HELLO) as events:
            await events.__anext__()
            await events.close()
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        await stream.close()

        assert core.cancelled == [1, 2]


async def test_events_cannot_be_read_before_the_scope_is_entered() -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        events = engine.chat.completions.stream(messages=HELLO)
        with pytest.raises(BadRequestError, match="write `async with engine"):
            await events.get_final_completion()
    with (
        MLCEngine(loader=fake_loader()) as blocking,
        pytest.raises(BadRequestError, match="write `with engine"),
    ):
        list(blocking.chat.completions.stream(messages=HELLO))


async def test_events_of_blocking_code_explain_async_for() -> None:
    with MLCEngine(loader=fake_loader()) as engine:
        events: Any = engine.chat.completions.stream(messages=HELLO)
        with pytest.raises(TypeError, match="is a blocking iterator: use `for`, or `AsyncMLC"):
            aiter(events)


async def test_until_done_consumes_all_events() -> None:
    async with (
        AsyncMLCEngine(loader=fake_loader(FakeCore(["So"]))) as engine,
        engine.chat.completions.stream(messages=HELLO) as events,
    ):
        await events.until_done()
        assert [event async for event in events] == []
        final = await events.get_final_completion()

    assert final.choices[0].message.content == "So"


async def test_an_invalid_request_is_rejected_on_entering_the_scope() -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(BadRequestError):
            async with engine.chat.completions.stream(messages=[]):
                pass


@pytest.mark.parametrize(
    ("options", "has_usage"),
    [
        ({}, True),
        ({"stream": True}, True),
        ({"stream_options": {"include_usage": True}}, True),
        ({"extra_body": {"stream_options": {"include_usage": True}}}, True),
        ({"stream_options": {"include_usage": False}}, False),
    ],
)
async def test_events_end_with_the_usage_unless_it_is_disabled(
    options: dict[str, Any], *, has_usage: bool
) -> None:
    async with (
        AsyncMLCEngine(loader=fake_loader()) as engine,
        engine.chat.completions.stream(messages=HELLO, **options) as events,
    ):
        final = await events.get_final_completion()

    assert (final.usage is not None) == has_usage
    with (
        MLCEngine(loader=fake_loader()) as blocking,
        blocking.chat.completions.stream(messages=HELLO, **options) as blocking_events,
    ):
        assert (blocking_events.get_final_completion().usage is not None) == has_usage


async def test_stream_rejects_stream_false_and_parse_rejects_stream_true() -> None:
    not_a_stream: dict[str, Any] = {"messages": HELLO, "stream": False}
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(BadRequestError) as caught:
            async with engine.chat.completions.stream(**not_a_stream):
                pass

        assert caught.value.param == "stream"
        with pytest.raises(BadRequestError) as caught:
            await engine.chat.completions.parse(
                response_format=dict[str, int], **{**not_a_stream, "stream": True}
            )

        assert caught.value.param == "stream"
