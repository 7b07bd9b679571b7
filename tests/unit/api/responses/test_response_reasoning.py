"""Thoughts in responses: told as items of their own, counted, and taken back."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

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
TURNS = (
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
        answer: Response = await engine.responses.create(input="Hello", **options)
        return answer


async def stream(reply: str, **options: Any) -> list[ResponseEvent]:  # noqa: ANN401
    async with AsyncMLCEngine(loader=loader(FakeCore([reply]))) as engine:
        events = await engine.responses.create(input="Hello", stream=True, **options)
        return [event async for event in events]


async def turns_of(*items: Any, template: str = TURNS) -> str:  # noqa: ANN401
    core = FakeCore()
    async with AsyncMLCEngine(loader=loader(core, template)) as engine:
        await engine.responses.create(input=items)

    return bytes(core.prompts[0]).decode()


def thought(text: str, **fields: object) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content, **fields}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


async def test_thoughts_are_an_item_before_the_message_and_are_counted() -> None:
    answer = await respond(REPLY)

    dump = answer.model_dump()
    item_id = dump["output"][0].pop("id")
    assert item_id.startswith("rs_")
    assert dump["output"][0] == {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "status": "completed",
    }
    assert [item["type"] for item in dump["output"]] == ["reasoning", "message"]
    assert answer.output_text == "Hi"
    assert dump["usage"]["output_tokens_details"] == {"reasoning_tokens": len("<think>hm</think>")}
    assert dump["usage"]["output_tokens"] == len(REPLY)


async def test_the_clients_type_of_thoughts_accepts_the_item() -> None:
    types = pytest.importorskip("openai.types.responses")
    answer = await respond(REPLY)

    item = answer.output[0]
    parsed = types.ResponseReasoningItem.model_validate_json(item.model_dump_json(), strict=True)

    assert parsed.model_dump(exclude_unset=True) == item.model_dump()
    assert not parsed.model_extra


async def test_an_answer_without_thoughts_has_no_item_of_them() -> None:
    answer = await respond("Hi")

    assert [item.type for item in answer.output] == ["message"]
    assert answer.usage is not None
    assert answer.usage.output_tokens_details.reasoning_tokens == 0


async def test_events_of_thoughts_come_first_and_are_numbered() -> None:
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


async def test_events_of_thoughts_add_up_to_their_item() -> None:
    events = await stream(REPLY)

    told = [event for event in events if event.type.startswith("response.reasoning_text")]
    *deltas, done = told
    last = events[-1].response
    assert last is not None
    item = last.output[0]
    assert item.type == "reasoning"
    assert "".join(event.delta or "" for event in deltas) == done.text == item.content[0].text
    assert {event.item_id for event in told} == {item.id}
    assert {event.content_index for event in told} == {0}
    assert last.output == [
        event.item for event in events if event.type == "response.output_item.done"
    ]


async def test_thoughts_that_are_cut_are_an_incomplete_item_and_no_message() -> None:
    answer = await respond(REPLY, max_output_tokens=len("<think>hm"))
    events = await stream(REPLY, max_output_tokens=len("<think>hm"))

    (item,) = answer.output
    assert (answer.status, item.type, item.status) == ("incomplete", "reasoning", "incomplete")
    assert item.type == "reasoning"
    assert item.content[0].text == "hm"
    assert answer.output_text == ""
    assert events[-1].type == "response.incomplete"


async def test_thoughts_are_taken_back_as_those_of_the_next_turn() -> None:
    summary = [{"type": "summary_text", "text": "B"}]
    turns = await turns_of(
        thought("A"),
        {"role": "assistant", "content": "Wait."},
        call("1"),
        {"type": "reasoning", "summary": summary},
        call("2"),
        call("3"),
        {"type": "function_call_output", "call_id": "1", "output": "sun"},
        {"type": "reasoning", "summary": []},
        thought("C"),
        {"role": "user", "content": "Go"},
        thought("D", status="incomplete"),
    )

    assert turns == (
        "[assistant:A|Wait.|f][assistant:B||ff][tool:|sun|][assistant:C||][user:|Go|]"
        "[assistant:D||]"
    )


async def test_the_output_of_an_answer_with_thoughts_is_input_of_the_next() -> None:
    types = pytest.importorskip("openai.types.responses")
    answer = await respond(REPLY)
    theirs = types.Response.model_validate_json(answer.model_dump_json())
    fields = [item.model_dump() for item in answer.output]

    for items in (answer.output, theirs.output, fields):
        assert await turns_of(*items) == "[assistant:hm|Hi|]"


async def test_thoughts_are_dropped_where_the_template_has_no_place_for_them() -> None:
    turns = await turns_of(
        thought("A"),
        {"role": "assistant", "content": "Hi"},
        template="{% for m in messages %}[{{ m.content }}]{% endfor %}",
    )

    assert turns == "[Hi]"


async def test_a_summary_may_be_asked_for_and_is_empty() -> None:
    answer = await respond(REPLY, reasoning={"summary": "auto"})

    assert answer.reasoning == {"summary": "auto"}
    assert answer.output[0].model_dump()["summary"] == []


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "reasoning"}, "input[0].summary"),
        (thought("A", colour=1), "input[0].colour"),
        (thought("A", encrypted_content="x"), "input[0].encrypted_content"),
        (thought("A", content=[{"type": "text", "text": ""}]), "input[0].content[0].type"),
    ],
)
async def test_an_item_that_is_wrong_is_named(item: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        await turns_of(item)

    assert caught.value.param == param
