"""Reasoning in responses: separate items, counted tokens, and reasoning as input."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

import openai.types.responses
import pytest
from openai.types.responses import ResponseReasoningItem

from aiomlc import AsyncMLCEngine, Response
from aiomlc.api.protocol.response import ResponseEvent
from aiomlc.api.session.loader import Loader
from aiomlc.errors import BadRequestError
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore, fake_model

pytestmark = pytest.mark.timeout(20)
REPLY = "<think>hm</think>Hi"
CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
TOOLS = [{"type": "function", "name": "f"}]
TURNS_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}:{{ m.reasoning_content }}|{{ m.content or '' }}|"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}]{% endfor %}"
)


def loader(core: FakeCore, template: str | None = None) -> Loader:
    async def load(model: object, **_: object) -> LoadedModel:
        fake = fake_model(core)
        return replace(
            fake,
            chat_template=fake.chat_template if template is None else ChatTemplate(template),
            reasoning_format=ReasoningFormat("<think>", "</think>"),
        )

    return load


async def respond(reply: str, **options: Any) -> Response:  # noqa: ANN401
    async with AsyncMLCEngine(loader=loader(FakeCore([reply]))) as engine:
        response: Response = await engine.responses.create(input="Hello", **options)
        return response


async def stream(reply: str, **options: Any) -> list[ResponseEvent]:  # noqa: ANN401
    async with AsyncMLCEngine(loader=loader(FakeCore([reply]))) as engine:
        events = await engine.responses.create(input="Hello", stream=True, **options)
        return [event async for event in events]


async def rendered_input(*items: Any, template: str = TURNS_TEMPLATE) -> str:  # noqa: ANN401
    core = FakeCore()
    async with AsyncMLCEngine(loader=loader(core, template)) as engine:
        await engine.responses.create(input=items)

    return bytes(core.prompts[0]).decode()


def reasoning_item(text: str, **fields: object) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content, **fields}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


async def test_reasoning_is_an_item_before_the_message_and_its_tokens_are_counted() -> None:
    response = await respond(REPLY)

    dump = response.model_dump()
    item_id = dump["output"][0].pop("id")
    assert item_id.startswith("rs_")
    assert dump["output"][0] == {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "status": "completed",
    }
    assert [item["type"] for item in dump["output"]] == ["reasoning", "message"]
    assert response.output_text == "Hi"
    assert dump["usage"]["output_tokens_details"] == {"reasoning_tokens": len("<think>hm</think>")}
    assert dump["usage"]["output_tokens"] == len(REPLY)


async def test_openais_type_accepts_the_reasoning_item() -> None:
    response = await respond(REPLY)

    item = response.output[0]
    parsed = ResponseReasoningItem.model_validate_json(item.model_dump_json(), strict=True)

    assert parsed.model_dump(exclude_unset=True) == item.model_dump()
    assert not parsed.model_extra


async def test_a_response_without_reasoning_has_no_reasoning_item() -> None:
    response = await respond("Hi")

    assert [item.type for item in response.output] == ["message"]
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 0


async def test_reasoning_events_come_first() -> None:
    events = await stream(REPLY + CALL, tools=TOOLS)

    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [key for key, _ in groupby((event.type, event.output_index) for event in events)] == [
        ("response.created", None),
        ("response.in_progress", None),
        ("response.output_item.added", 0),
        ("response.content_part.added", 0),
        ("response.reasoning_text.delta", 0),
        ("response.reasoning_text.done", 0),
        ("response.content_part.done", 0),
        ("response.output_item.done", 0),
        ("response.output_item.added", 1),
        ("response.content_part.added", 1),
        ("response.output_text.delta", 1),
        ("response.output_text.done", 1),
        ("response.content_part.done", 1),
        ("response.output_item.done", 1),
        ("response.output_item.added", 2),
        ("response.function_call_arguments.delta", 2),
        ("response.function_call_arguments.done", 2),
        ("response.output_item.done", 2),
        ("response.completed", None),
    ]


async def test_reasoning_events_add_up_to_the_reasoning_item() -> None:
    events = await stream(REPLY)

    reasoning_events = [
        event for event in events if event.type.startswith("response.reasoning_text")
    ]
    *deltas, done = reasoning_events
    last = events[-1].response
    assert last is not None
    item = last.output[0]
    assert item.type == "reasoning"
    assert "".join(event.delta or "" for event in deltas) == done.text == item.content[0].text
    assert {event.item_id for event in reasoning_events} == {item.id}
    assert {event.content_index for event in reasoning_events} == {0}
    assert last.output == [
        event.item for event in events if event.type == "response.output_item.done"
    ]


async def test_truncated_reasoning_is_an_incomplete_item_without_a_message() -> None:
    response = await respond(REPLY, max_output_tokens=len("<think>hm"))
    events = await stream(REPLY, max_output_tokens=len("<think>hm"))

    (item,) = response.output
    assert (response.status, item.type, item.status) == ("incomplete", "reasoning", "incomplete")
    assert item.type == "reasoning"
    assert item.content[0].text == "hm"
    assert response.output_text == ""
    assert events[-1].type == "response.incomplete"


async def test_reasoning_items_belong_to_the_next_message_or_call() -> None:
    summary = [{"type": "summary_text", "text": "B"}]
    prompt = await rendered_input(
        reasoning_item("A"),
        {"role": "assistant", "content": "Wait."},
        call("1"),
        {"type": "reasoning", "summary": summary},
        call("2"),
        call("3"),
        {"type": "function_call_output", "call_id": "1", "output": "sun"},
        {"type": "reasoning", "summary": []},
        reasoning_item("C"),
        {"role": "user", "content": "Go"},
        reasoning_item("D", status="incomplete"),
    )

    assert prompt == (
        "[assistant:A|Wait.|f][assistant:B||ff][tool:|sun|][assistant:C||][user:|Go|]"
        "[assistant:D||]"
    )


async def test_output_with_reasoning_can_be_sent_back_as_input() -> None:
    response = await respond(REPLY)
    openai_response = openai.types.responses.Response.model_validate_json(
        response.model_dump_json()
    )
    fields = [item.model_dump() for item in response.output]

    for items in (response.output, openai_response.output, fields):
        assert await rendered_input(*items) == "[assistant:hm|Hi|]"


async def test_reasoning_is_dropped_if_the_template_does_not_render_it() -> None:
    prompt = await rendered_input(
        reasoning_item("A"),
        {"role": "assistant", "content": "Hi"},
        template="{% for m in messages %}[{{ m.content }}]{% endfor %}",
    )

    assert prompt == "[Hi]"


async def test_a_requested_summary_is_empty() -> None:
    response = await respond(REPLY, reasoning={"summary": "auto"})

    assert response.reasoning == {"summary": "auto"}
    assert response.output[0].model_dump()["summary"] == []


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "reasoning"}, "input[0].summary"),
        (reasoning_item("A", colour=1), "input[0].colour"),
        (reasoning_item("A", encrypted_content="x"), "input[0].encrypted_content"),
        (reasoning_item("A", content=[{"type": "text", "text": ""}]), "input[0].content[0].type"),
    ],
)
async def test_an_invalid_item_is_named(item: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        await rendered_input(item)

    assert caught.value.param == param
