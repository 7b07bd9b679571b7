"""The tool-calling loop: the bundled model calls a tool and answers with its result."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import pytest
from anyio import CapacityLimiter, create_task_group

from aiomlc import AsyncMLCEngine, MLCEngine
from aiomlc.api.protocol.chat import ChatCompletion, ChatCompletionMessage, Choice
from aiomlc.api.protocol.message_params import MessageLike
from tests.e2e.held_out import Case, read_cases

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The name of the city"}},
            "required": ["city"],
        },
    },
}
QUESTION = {"role": "user", "content": "What is the weather in Rome?"}


def complete(engine: MLCEngine, messages: Sequence[MessageLike]) -> Choice:
    return engine.chat.completions.create(
        messages=messages, tools=[WEATHER], temperature=0
    ).choices[0]


def test_answer_after_a_tool_call_uses_its_result() -> None:
    with MLCEngine() as engine:
        choice = complete(engine, [QUESTION])
        message = choice.message
        assert message.tool_calls is not None
        call = message.tool_calls[0]
        result = {"role": "tool", "tool_call_id": call.id, "content": '{"weather": "sunny"}'}
        answer = complete(engine, [QUESTION, message, result])

    assert (message.content, choice.finish_reason) == (None, "tool_calls")
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Rome"}
    assert answer.finish_reason == "stop"
    assert "sunny" in (answer.message.content or "")


async def test_streamed_deltas_form_the_complete_tool_call() -> None:
    async with AsyncMLCEngine() as engine:
        stream = await engine.chat.completions.create(
            messages=[QUESTION], tools=[WEATHER], temperature=0, stream=True
        )
        choices = [chunk.choices[0] async for chunk in stream]

    calls = [call for choice in choices for call in choice.delta.tool_calls or ()]
    arguments = "".join(call.function.arguments or "" for call in calls)
    assert "".join(choice.delta.content or "" for choice in choices) == ""
    assert {call.index for call in calls} == {0}
    assert (calls[0].function.name, json.loads(arguments)) == ("get_weather", {"city": "Rome"})
    assert choices[-1].finish_reason == "tool_calls"


def to_openai(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert messages of the training data to OpenAI's: add ids, serialize arguments."""
    result = []
    for message in messages:
        fields = {**message, "tool_calls": [dict(call) for call in message.get("tool_calls", ())]}
        for call in fields["tool_calls"]:
            call["id"] = "call_1"
            arguments = json.dumps(call["function"]["arguments"], ensure_ascii=False)
            call["function"] = {**call["function"], "arguments": arguments}
        if not fields["tool_calls"]:
            del fields["tool_calls"]
        if message["role"] == "tool":
            fields["tool_call_id"] = "call_1"
        result.append(fields)
    return result


def strict(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool with `strict` set and without additional properties."""
    function = tool["function"]
    parameters = {**function["parameters"], "additionalProperties": False}
    return {**tool, "function": {**function, "parameters": parameters, "strict": True}}


async def complete_message(engine: AsyncMLCEngine, **options: Any) -> ChatCompletionMessage:  # noqa: ANN401
    completion: ChatCompletion = await engine.chat.completions.create(**options)
    return completion.choices[0].message


async def streamed_message(engine: AsyncMLCEngine, **options: Any) -> ChatCompletionMessage:  # noqa: ANN401
    async with engine.chat.completions.stream(**options) as events:
        completion: ChatCompletion = await events.get_final_completion()
    return completion.choices[0].message


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("get_message", [complete_message, streamed_message])
async def test_90_percent_of_held_out_tool_turns_are_exact(
    get_message: Callable[..., Awaitable[ChatCompletionMessage]],
) -> None:
    cases = read_cases(100)["tools"]
    outcomes: dict[bool, list[bool]] = {True: [], False: []}
    limiter = CapacityLimiter(32)

    async def run_case(engine: AsyncMLCEngine, case: Case) -> None:
        async with limiter:
            message = await get_message(
                engine,
                messages=to_openai(case["messages"]),
                tools=[strict(tool) for tool in case["tools"]],
                temperature=0,
            )
        actual = [
            {"name": call.function.name, "arguments": json.loads(call.function.arguments)}
            for call in message.tool_calls or ()
        ]
        has_calls = "tool_calls" in case
        if has_calls:
            outcomes[True].append(actual == case["tool_calls"])
        else:
            outcomes[False].append(message.content in case["accept"])

    with anyio.fail_after(100):
        async with AsyncMLCEngine() as engine, create_task_group() as tasks:
            for case in cases:
                tasks.start_soon(run_case, engine, case)

    for turns in outcomes.values():
        assert len(turns) >= 40
        assert sum(turns) / len(turns) >= 0.9
