"""Responses: wire format, events, input items and errors."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, MLCEngine, Response
from aiomlc.api.protocol.response import ResponseEvent
from aiomlc.api.protocol.response_request import parse_response_request
from aiomlc.errors import BadRequestError, EngineDeadError, PromptTooLongError
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
TOOLS = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}]
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Bern"}}</tool_call>'


async def respond(core: FakeCore, input_: Any = "Hello", **options: Any) -> Response:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        response: Response = await engine.responses.create(input=input_, **options)
        return response


async def stream(core: FakeCore, input_: Any = "Hello", **options: Any) -> list[ResponseEvent]:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        events = await engine.responses.create(input=input_, stream=True, **options)
        return [event async for event in events]


async def rendered_prompt(input_: Any, **options: Any) -> str:  # noqa: ANN401
    core = FakeCore()
    await respond(core, input_, **options)
    return bytes(core.prompts[0]).decode()


async def test_a_response_has_openais_format() -> None:
    response = await respond(FakeCore(["abc"]), model="mine", request_id="resp_1")

    dump = response.model_dump()
    item_id = dump["output"][0].pop("id")
    assert item_id.startswith("msg_")
    assert dump["output"] == [
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "abc", "annotations": [], "logprobs": []}],
        }
    ]
    assert (dump["id"], dump["object"], dump["status"]) == ("resp_1", "response", "completed")
    assert dump["usage"]["output_tokens"] == 3
    assert dump["usage"]["total_tokens"] == dump["usage"]["input_tokens"] + 3
    assert response.output_text == "abc"


async def test_events_are_numbered_and_in_openais_order() -> None:
    events = await stream(FakeCore(["Hi " + CALL]), tools=TOOLS)

    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event_type for event_type, _ in groupby(event.type for event in events)] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]


async def test_the_events_add_up_to_the_response() -> None:
    events = await stream(FakeCore(["Hi " + CALL]), tools=TOOLS)

    last = events[-1].response
    assert last is not None
    by_type = {event.type: event for event in events}
    done = [event.item for event in events if event.type == "response.output_item.done"]
    message, call = last.output
    assert done == last.output
    assert (message.type, call.type) == ("message", "function_call")
    assert (
        "".join(event.delta or "" for event in events if event.type == "response.output_text.delta")
        == by_type["response.output_text.done"].text
        == last.output_text
    )
    arguments = by_type["response.function_call_arguments.done"].arguments
    assert json.loads(arguments or "") == {"city": "Bern"}
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("weather", arguments)


async def test_a_truncated_response_is_incomplete() -> None:
    response = await respond(FakeCore(["abcdef"]), max_output_tokens=2)
    events = await stream(FakeCore(["abcdef"]), max_output_tokens=2)

    assert (response.status, response.output[0].status) == ("incomplete", "incomplete")
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert events[-1].type == "response.incomplete"


async def test_a_string_is_a_user_message() -> None:
    assert await rendered_prompt("Hello", instructions="Be brief.") == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_items_are_converted_to_chat_messages() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "message", "role": "assistant", "content": "Wait."},
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "weather", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "1", "output": "sun"},
        {
            "type": "function_call_output",
            "call_id": "2",
            "output": [{"type": "input_text", "text": "rain"}],
        },
    ]

    prompt = await rendered_prompt(items, tools=TOOLS)

    assert prompt.endswith(
        "<|im_start|>user\nWeather?<|im_end|>\n"
        "<|im_start|>assistant\nWait."
        '<tool_call>{"name": "weather", "arguments": {}}</tool_call>'
        '<tool_call>{"name": "weather", "arguments": {"a": 1}}</tool_call><|im_end|>\n'
        "<|im_start|>tool\nsun<|im_end|>\n<|im_start|>tool\nrain<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


async def test_output_items_can_be_sent_back_as_input() -> None:
    response = await respond(FakeCore(["So " + CALL]), tools=TOOLS)
    fields = [item.model_dump() for item in response.output]

    for items in (response.output, fields):
        prompt = await rendered_prompt(list(items), tools=TOOLS)
        assert "assistant\nSo<tool_call>" in prompt.replace("So ", "So")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"store": True}, "store"),
        ({"conversation": "c"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["reasoning.encrypted_content"]}, "include"),
        ({"colour": 1}, "colour"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"input_": []}, "input"),
        ({"input_": [{"type": "item_reference", "id": "r"}]}, "input[0]"),
        ({"input_": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"input_": [{"type": "function_call", "call_id": "1"}]}, "input[0].name"),
    ],
)
async def test_an_invalid_or_unsupported_field_is_named(
    options: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        await respond(FakeCore(), **{"input_": "Hello", **options})

    assert caught.value.param is not None
    assert caught.value.param.startswith(param)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"tools": [{**TOOLS[0], "name": "a b"}]}, "tools[0].name"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "g"}}, "tool_choice"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
async def test_errors_of_the_chat_request_name_the_response_field(
    options: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        await respond(FakeCore(), **options)

    assert caught.value.param == param
    assert str(caught.value).startswith(f"{param}: ")


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("messages", "input"),
        ("messages[0]", "instructions"),
        ("messages[0].content", "instructions"),
        ("messages[1].content", "input[0].content"),
        ("messages[2]", "input[2]"),
        ("messages[2].content", "input[2].content"),
        ("messages[2].reasoning_content", "input[1].content"),
        ("messages[2].tool_calls[0].function.arguments", "input[3].arguments"),
        ("messages[2].tool_calls[1].function.name", "input[4].name"),
        ("messages[2].tool_calls[1].id", "input[4].call_id"),
        ("messages[3].content", "input[5].output"),
        ("messages[3].tool_call_id", "input[5].call_id"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format.json_schema.schema", "text.format.schema"),
        ("tools[1].function.parameters", "tools[1].parameters"),
        ("tools[1].type", "tools[1].type"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("tool_choice.allowed_tools.tools[2].function.name", "tool_choice.tools[2].name"),
        ("temperature", "temperature"),
    ],
)
def test_chat_paths_are_converted_to_response_paths(path: str, param: str) -> None:
    request = parse_response_request(
        {
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "Hi"},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
                {"role": "assistant", "content": "So"},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "sun"},
            ],
        }
    )

    assert request.item_chat().to_response_path(path) == param


async def test_options_reach_the_core() -> None:
    core = FakeCore()
    await respond(core, max_output_tokens=5, temperature=0.25, seed=7, stop="x")

    options = core.options[0]
    assert (options.max_tokens, options.temperature, options.seed) == (5, 0.25, 7)
    assert options.stop == ("x",)


async def test_leaving_the_stream_early_cancels_the_request() -> None:
    core = FakeCore(["abc"], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        events = await engine.responses.create(input="Hello", stream=True)
        async with events:
            assert (await events.__anext__()).type == "response.created"

    assert core.cancelled == [1]


async def test_errors_are_raised_instead_of_being_events() -> None:
    with pytest.raises(PromptTooLongError):
        await respond(FakeCore(), "x" * 2000)
    with pytest.raises(EngineDeadError):
        await stream(FakeCore(["abc"], dies_at_step=2))


def test_the_blocking_engine_has_responses() -> None:
    with MLCEngine(loader=fake_loader(FakeCore(["abc"]))) as engine:
        response = engine.responses.create(input="Hello")
        event_types = [event.type for event in engine.responses.create(input="Hello", stream=True)]

    assert response.output_text == "abc"
    assert event_types[-1] == "response.completed"


async def test_a_call_that_ends_within_its_arguments_is_incomplete() -> None:
    broken = await respond(FakeCore([CALL[: CALL.index("Bern")]]), tools=TOOLS)
    complete = await respond(FakeCore([CALL]), tools=TOOLS)

    assert [item.model_dump()["status"] for item in broken.output] == ["incomplete"]
    assert [item.model_dump()["status"] for item in complete.output] == ["completed"]
