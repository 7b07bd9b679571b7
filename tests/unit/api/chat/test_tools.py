"""Tool calls in chat completions."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, ChatCompletion, ChatCompletionChunk
from aiomlc.errors import BadRequestError
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.tool_format import find_tool_format
from aiomlc.testing import FakeCore, fake_loader, fake_model

pytestmark = pytest.mark.timeout(20)
ASK = [{"role": "user", "content": "How is the weather in Rome?"}]
FUNCTION = {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


async def ask(core: FakeCore, **options: Any) -> ChatCompletion:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        completion: ChatCompletion = await engine.chat.completions.create(
            **{"messages": ASK, "tools": TOOLS, **options}
        )
        return completion


async def stream(core: FakeCore, **options: Any) -> list[ChatCompletionChunk]:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        chunks = await engine.chat.completions.create(
            messages=ASK, tools=TOOLS, stream=True, **options
        )
        return [chunk async for chunk in chunks]


def last_prompt(core: FakeCore) -> str:
    return fake_model(core).tokenizer.decode(core.prompts[-1])


async def test_a_tool_call_has_openais_format() -> None:
    completion = await ask(FakeCore([CALL]))

    choice = completion.model_dump()["choices"][0]
    call_id = choice["message"]["tool_calls"][0]["id"]
    assert choice == {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
                }
            ],
        },
        "logprobs": None,
        "finish_reason": "tool_calls",
    }


async def test_a_streamed_tool_call_has_openais_format() -> None:
    chunks = await stream(FakeCore(["Wait.\n" + CALL]))

    deltas = [chunk.model_dump()["choices"][0] for chunk in chunks]
    calls = [call for choice in deltas for call in choice["delta"].get("tool_calls", [])]
    assert deltas[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(choice["delta"].get("content", "") for choice in deltas) == "Wait."
    assert calls[0] == {
        "index": 0,
        "id": calls[0]["id"],
        "type": "function",
        "function": {"name": "get_weather", "arguments": ""},
    }
    assert all(set(call) == {"index", "function"} for call in calls[1:])
    assert "".join(call["function"]["arguments"] for call in calls) == '{"city": "Rome"}'
    assert [choice["finish_reason"] for choice in deltas[-2:]] == [None, "tool_calls"]


async def test_a_message_can_have_content_and_two_calls() -> None:
    completion = await ask(FakeCore([f"Both.\n{CALL}\n{CALL}"]))

    message = completion.choices[0].message
    assert message.content == "Both."
    assert message.tool_calls is not None
    assert [call.function.name for call in message.tool_calls] == ["get_weather"] * 2
    assert len({call.id for call in message.tool_calls}) == 2


async def test_a_completion_without_a_call_is_content() -> None:
    completion = await ask(FakeCore(["It is 3 < 4 <tool"]))

    assert completion.choices[0].message.content == "It is 3 < 4 <tool"
    assert completion.choices[0].message.tool_calls is None
    assert completion.choices[0].finish_reason == "stop"


async def test_a_call_cut_off_at_the_token_limit_is_dropped() -> None:
    completion = await ask(FakeCore([CALL]), max_tokens=20)

    assert completion.choices[0].finish_reason == "length"
    assert completion.choices[0].message.content == ""
    assert completion.choices[0].message.tool_calls is None


async def test_the_tools_are_passed_to_the_template() -> None:
    core = FakeCore()
    await ask(core)

    assert last_prompt(core).startswith('<tools>[{"type": "function", "function": {"name": "get_we')


async def test_tool_choice_none_hides_the_tools_and_disables_the_parser() -> None:
    core = FakeCore([CALL])
    completion = await ask(core, tool_choice="none")

    assert "<tools>" not in last_prompt(core)
    assert completion.choices[0].message.content == CALL
    assert completion.choices[0].finish_reason == "stop"


async def test_a_call_and_its_result_can_be_sent_back() -> None:
    core = FakeCore([CALL, "Sunny."])
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        first_completion = await engine.chat.completions.create(messages=ASK, tools=TOOLS)
        message = first_completion.choices[0].message
        assert message.tool_calls is not None
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
        last_completion = await engine.chat.completions.create(
            messages=[*ASK, message, result], tools=TOOLS
        )

    assert last_completion.choices[0].message.content == "Sunny."
    assert last_prompt(core).endswith(
        '<|im_start|>assistant\n<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}'
        "</tool_call><|im_end|>\n<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_a_model_without_a_tool_format_rejects_tools() -> None:
    core = FakeCore()

    async def load(model: object, **_: object) -> LoadedModel:
        return dataclasses.replace(fake_model(core), tool_format=None)

    async with AsyncMLCEngine(loader=load) as engine:
        with pytest.raises(BadRequestError, match="no supported tool-call format") as caught:
            await engine.chat.completions.create(messages=ASK, tools=TOOLS)

        await engine.chat.completions.create(messages=ASK, tools=TOOLS, tool_choice="none")

    assert caught.value.param == "tools"
    assert len(core.prompts) == 1


async def test_unquoted_arguments_are_converted_to_the_types_of_the_schema() -> None:
    call = "<tool_call>\n<function=f>\n{}</function>\n</tool_call>".format(
        "".join(f"<parameter={key}>\n5\n</parameter>\n" for key in ("text", "count"))
    )
    core = FakeCore([call])
    properties = {"text": {"type": "string"}, "count": {"type": "integer"}}
    function = {"name": "f", "parameters": {"type": "object", "properties": properties}}

    async def load(model: object, **_: object) -> LoadedModel:
        tool_format = find_tool_format("<tool_call><function=x><parameter=y>")
        return dataclasses.replace(fake_model(core), tool_format=tool_format)

    async with AsyncMLCEngine(loader=load) as engine:
        completion = await engine.chat.completions.create(
            messages=ASK, tools=[{"type": "function", "function": function}]
        )

    calls = completion.choices[0].message.tool_calls
    assert calls is not None
    assert json.loads(calls[0].function.arguments) == {"text": "5", "count": 5}


@pytest.mark.parametrize("text", [CALL, f"{CALL}\n{CALL}"])
async def test_a_call_that_ends_within_its_arguments_is_no_reason_to_call(text: str) -> None:
    within = [text[: text.rindex("Rome") + cut] for cut in range(-1, 6)]
    for reply in (*within, f"{within[-1]}\n</tool_call>", f"{within[-1]},</tool_call>\n"):
        whole, chunks = await ask(FakeCore([reply])), await stream(FakeCore([reply]))

        assert whole.choices[0].finish_reason == "stop"
        assert whole.choices[0].message.tool_calls is not None
        assert "tool_call>" not in whole.choices[0].message.tool_calls[-1].function.arguments
        assert chunks[-1].choices[0].finish_reason == "stop"
