"""The whole loop: the bundled model calls a tool, is told the result and answers with it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest
from anyio import CapacityLimiter, create_task_group

from aiomlc import AsyncMLCEngine, MLCEngine
from aiomlc.api.chat import MessageLike
from aiomlc.api.protocol.chat import Choice
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


def ask(engine: MLCEngine, messages: Sequence[MessageLike]) -> Choice:
    return engine.chat.completions.create(
        messages=messages, tools=[WEATHER], temperature=0
    ).choices[0]


def test_the_loop_ends_with_an_answer_that_knows_the_result() -> None:
    with MLCEngine() as engine:
        choice = ask(engine, [QUESTION])
        message = choice.message
        assert message.tool_calls is not None
        call = message.tool_calls[0]
        result = {"role": "tool", "tool_call_id": call.id, "content": '{"weather": "sunny"}'}
        answer = ask(engine, [QUESTION, message, result])

    assert (message.content, choice.finish_reason) == (None, "tool_calls")
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Rome"}
    assert answer.finish_reason == "stop"
    assert "sunny" in (answer.message.content or "")


async def test_a_streamed_call_is_the_whole_call() -> None:
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


def for_openai(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages of the training's form in OpenAI's: ids, and arguments as text."""
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


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_most_held_out_questions_get_the_right_calls() -> None:
    cases = [case for case in read_cases(100)["tools"] if "tool_calls" in case]
    outcomes: dict[bool, int] = defaultdict(int)
    limiter = CapacityLimiter(32)

    async def ask(engine: AsyncMLCEngine, case: Case) -> None:
        async with limiter:
            answer = await engine.chat.completions.create(
                messages=for_openai(case["messages"]), tools=case["tools"], temperature=0
            )
        calls = answer.choices[0].message.tool_calls or []
        made = [
            {"name": call.function.name, "arguments": json.loads(call.function.arguments)}
            for call in calls
        ]
        outcomes[made == case["tool_calls"]] += 1

    with anyio.fail_after(100):
        async with AsyncMLCEngine() as engine, create_task_group() as tasks:
            for case in cases:
                tasks.start_soon(ask, engine, case)

    assert len(cases) >= 20
    # Of the calls alone 45 of 52 are right; with the answers from results, 93 of 100.
    assert outcomes[True] / len(cases) >= 0.85, dict(outcomes)
