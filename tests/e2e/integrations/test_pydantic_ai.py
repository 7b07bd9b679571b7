"""pydantic-ai's model on an engine: requests on asyncio and trio, agents on asyncio."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, BadRequestError
from tests.e2e.integrations.asked import CAPITAL, EXTRACT, STORY, WEATHER, Person, ask, get_weather
from tests.e2e.waiting import wait_until

pydantic_ai = pytest.importorskip("pydantic_ai")
messages = pytest.importorskip("pydantic_ai.messages")
models = pytest.importorskip("pydantic_ai.models")
adapter = pytest.importorskip("aiomlc.integrations.pydantic_ai")
pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
GREEDY: Any = {"temperature": 0}
LONG: Any = {"max_tokens": 1900, "extra_body": {"ignore_eos": True}}
ON_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def asked(prompt: str) -> list[Any]:
    """Return the messages of a question."""
    return [messages.ModelRequest(parts=[messages.UserPromptPart(prompt)])]


async def test_answers_are_those_of_the_engine() -> None:
    async with AsyncMLCEngine() as engine:
        expected = await ask(engine, CAPITAL)
        model = adapter.AiomlcModel(engine, settings=GREEDY)
        parameters = models.ModelRequestParameters()
        whole = await model.request(asked(CAPITAL), None, parameters)
        async with model.request_stream(asked(CAPITAL), None, parameters) as stream:
            kinds = {event.event_kind async for event in stream}
            streamed = stream.get()

        counted = await model.count_tokens(asked(CAPITAL), None, parameters)

    text = expected.choices[0].message.content
    assert text
    assert [part.content for part in whole.parts] == [text]
    assert [part.content for part in streamed.parts] == [text]
    assert {"part_start", "part_end"} <= kinds
    assert whole.finish_reason == streamed.finish_reason == "stop"
    assert expected.usage is not None
    assert whole.usage.output_tokens == expected.usage.completion_tokens
    assert streamed.usage.output_tokens == expected.usage.completion_tokens
    assert counted.input_tokens == expected.usage.prompt_tokens


async def test_leaving_a_stream_early_aborts_its_request() -> None:
    async with AsyncMLCEngine() as engine:
        model = adapter.AiomlcModel(engine, settings=LONG)
        parameters = models.ModelRequestParameters()
        async with model.request_stream(asked(STORY), None, parameters) as stream:
            await anext(aiter(stream))
            assert engine.statistics().num_running == 1

        await wait_until(lambda: engine.statistics().finished["abort"] == 1)
        async with model.request_stream(asked(STORY), None, parameters) as stream:
            events = aiter(stream)
            await anext(events)
            await stream.cancel()
            await wait_until(lambda: engine.statistics().finished["abort"] == 2)
            assert [event async for event in events if event.event_kind == "part_start"] == []
            assert stream.get().state == "interrupted"


async def test_cancelling_a_request_aborts_it() -> None:
    async with AsyncMLCEngine() as engine:
        await engine.metrics()
        model = adapter.AiomlcModel(engine, settings=LONG)
        async with create_task_group() as tasks:
            tasks.start_soon(model.request, asked(STORY), None, models.ModelRequestParameters())
            await wait_until(lambda: engine.statistics().num_running == 1)
            tasks.cancel_scope.cancel()

        await wait_until(lambda: engine.statistics().finished["abort"] == 1)


@ON_ASYNCIO
async def test_an_agent_streams_text() -> None:
    async with AsyncMLCEngine() as engine:
        agent = pydantic_ai.Agent(adapter.AiomlcModel(engine), model_settings=GREEDY)
        whole = await agent.run(CAPITAL)
        async with agent.run_stream(CAPITAL) as stream:
            text = "".join([part async for part in stream.stream_text(delta=True)])

    assert text == whole.output


@ON_ASYNCIO
async def test_an_agent_calls_tools() -> None:
    cities: list[str] = []
    async with AsyncMLCEngine() as engine:
        model = adapter.AiomlcModel(engine, settings=GREEDY)
        agent = pydantic_ai.Agent(model, tools=[get_weather(cities)])
        result = await agent.run(WEATHER)
        forced = await model.request(
            asked(WEATHER),
            {"tool_choice": ["get_weather"]},
            models.ModelRequestParameters(function_tools=[_weather_definition()]),
        )

    calls = [part for part in forced.parts if part.part_kind == "tool-call"]
    assert [call.tool_name for call in calls] == ["get_weather"]
    assert forced.finish_reason == "tool_call"
    assert cities == [calls[0].args_as_dict()["city"]]
    assert [message.kind for message in result.all_messages()] == [
        "request",
        "response",
        "request",
        "response",
    ]


def _weather_definition() -> Any:  # noqa: ANN401 - pydantic-ai may be missing.
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The name of the city"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    definitions = pytest.importorskip("pydantic_ai.tools")
    return definitions.ToolDefinition(
        name="get_weather", parameters_json_schema=schema, description="Get the weather in a city."
    )


@ON_ASYNCIO
@pytest.mark.parametrize("output", ["Person", "NativeOutput", "ToolOutput", "PromptedOutput"])
async def test_an_agent_returns_a_type(output: str) -> None:
    kind: Any = Person if output == "Person" else getattr(pydantic_ai, output)(Person)
    async with AsyncMLCEngine() as engine:
        agent = pydantic_ai.Agent(
            adapter.AiomlcModel(engine), output_type=kind, model_settings=GREEDY, retries=5
        )
        result = await agent.run(EXTRACT)

    assert isinstance(result.output, Person)


@ON_ASYNCIO
async def test_instructions_and_history_are_one_conversation() -> None:
    async with AsyncMLCEngine() as engine:
        model = adapter.AiomlcModel(engine, settings=GREEDY)
        agent = pydantic_ai.Agent(model, system_prompt="Be brief.", instructions="Be polite.")
        first = await agent.run(CAPITAL)
        second = await agent.run(CAPITAL, message_history=first.all_messages())
        expected = await engine.chat.completions.create(
            messages=[
                {"role": "system", "content": "Be brief.\n\nBe polite."},
                {"role": "user", "content": CAPITAL},
                {"role": "assistant", "content": first.output},
                {"role": "user", "content": CAPITAL},
            ],
            temperature=0,
        )

    assert second.output == expected.choices[0].message.content


async def test_an_image_is_refused_by_a_model_that_reads_none() -> None:
    async with AsyncMLCEngine() as engine:
        image = messages.ImageUrl("https://example.com/a.png")
        request = messages.ModelRequest(parts=[messages.UserPromptPart([image])])
        model, parameters = adapter.AiomlcModel(engine), models.ModelRequestParameters()
        with pytest.raises(BadRequestError, match="does not read images"):
            await model.request([request], None, parameters)


async def test_the_engine_is_checked() -> None:
    with pytest.raises(BadRequestError, match="engine must be an AsyncMLCEngine, got str"):
        adapter.AiomlcModel("pebble")
