"""A chat, a stream, tools and a type, in process and against a server."""

from __future__ import annotations

import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # Without it, the import asks the network.

import instructor
import litellm
import openai
import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from aiomlc import MLCEngine
from tests.e2e.clients_page import OLD_BLOCKS, run_block
from tests.e2e.framework_questions import (
    CAPITAL,
    EXTRACT,
    MIA,
    MODEL,
    PLACES,
    WEATHER,
    Person,
    WeatherTool,
)
from tests.e2e.serve_process import open_client

pytestmark = pytest.mark.timeout(240)
WEATHER_SCHEMA = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The name of the city"}},
            "required": ["city"],
        },
    },
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@PLACES
async def test_litellm(place: str, request: pytest.FixtureRequest) -> None:
    async with open_client(place, request) as client:

        async def ask(*messages: Any, **options: Any) -> Any:  # noqa: ANN401 - litellm's.
            return await litellm.acompletion(
                model=f"openai/{MODEL}", client=client, temperature=0, messages=messages, **options
            )

        whole = await ask(user(CAPITAL))
        stream = await ask(user(CAPITAL), stream=True)
        deltas = [chunk.choices[0].delta.content or "" async for chunk in stream]
        called = (await ask(user(WEATHER), tools=[WEATHER_SCHEMA])).choices[0].message
        (call,) = called.tool_calls
        result = {"role": "tool", "tool_call_id": call.id, "content": '{"weather": "sunny"}'}
        message = called.model_dump(exclude_none=True)
        answer = await ask(user(WEATHER), message, result, tools=[WEATHER_SCHEMA])
        parsed = await ask(user(EXTRACT), response_format=Person)

    assert "Rome" in whole.choices[0].message.content
    assert "".join(deltas) == whole.choices[0].message.content
    assert call.function.arguments == '{"city": "Rome"}'
    assert "sunny" in answer.choices[0].message.content
    assert Person.model_validate_json(parsed.choices[0].message.content) == MIA


@PLACES
@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"])
async def test_instructor(mode: str, place: str, request: pytest.FixtureRequest) -> None:
    async with open_client(place, request) as client:
        completions = instructor.from_openai(client, mode=instructor.Mode[mode]).chat.completions
        options: dict[str, Any] = {"model": MODEL, "temperature": 0}
        whole = await completions.create(response_model=None, messages=[user(CAPITAL)], **options)
        parsed = await completions.create(
            response_model=Person, messages=[user(EXTRACT)], max_retries=0, **options
        )
        partial = [
            person
            async for person in completions.create_partial(
                response_model=Person, messages=[user(EXTRACT)], **options
            )
        ]

    assert "Rome" in whole.choices[0].message.content
    assert parsed.model_dump() == MIA.model_dump()
    # How many there are depends on how the deltas of a slow reader are joined.
    assert all(MIA.name.startswith(person.name or "") for person in partial)
    assert {person.age for person in partial} <= {None, MIA.age // 10, MIA.age}
    assert partial[-1].model_dump() == MIA.model_dump()


@PLACES
async def test_llama_index(place: str, request: pytest.FixtureRequest) -> None:
    weather = WeatherTool()
    async with open_client(place, request) as client:
        model = OpenAILike(
            model=MODEL,
            api_key="none",
            is_chat_model=True,
            is_function_calling_model=True,
            should_use_structured_outputs=True,
            temperature=0,
            async_openai_client=client,
        )
        whole = await model.achat([ChatMessage(CAPITAL)])
        deltas = [part.delta async for part in await model.astream_chat([ChatMessage(CAPITAL)])]
        agent = FunctionAgent(tools=[FunctionTool.from_defaults(weather.function)], llm=model)
        answer = str(await agent.run(WEATHER))
        parsed = await model.as_structured_llm(Person).achat([ChatMessage(EXTRACT)])

    assert "Rome" in whole.message.content
    assert "".join(deltas) == whole.message.content
    assert weather.cities == ["Rome"]
    assert "sunny" in answer
    assert parsed.raw == MIA


@pytest.mark.parametrize("block", OLD_BLOCKS, ids=range(1, len(OLD_BLOCKS) + 1))
def test_block_of_the_page_answers(block: str, request: pytest.FixtureRequest) -> None:
    assert "Rome" in run_block(block, request)


def test_blocking_client_of_openai_2_times_out() -> None:
    with MLCEngine() as engine, engine.openai_client() as client:
        completions = client.with_options(timeout=1e-6, max_retries=0).chat.completions
        with pytest.raises(openai.APITimeoutError):
            completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Tell me a story."}]
            )


def test_openai_is_older_than_in_the_other_tests() -> None:
    assert openai.__version__.startswith("2.")
