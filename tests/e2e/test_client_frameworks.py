"""Frameworks on OpenAI's client, in process and against a server: a chat, a stream, tools, a type.

They run on asyncio only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.clients_page import BLOCKS, run_block
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
from tests.e2e.serve_process import ServerProcess, open_client, run_server

pytestmark = [
    pytest.mark.timeout(240),
    # Of the frameworks, which do not concern us.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def without_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send nothing to the network."""
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of the bundled model."""
    with run_server(tmp_path_factory.mktemp("frameworks")) as process:
        yield process


@PLACES
@pytest.mark.sampled(1)
async def test_langchain(place: str, request: pytest.FixtureRequest) -> None:
    chat_models = pytest.importorskip("langchain_openai")
    core_tools = pytest.importorskip("langchain_core.tools")
    weather = WeatherTool()
    tool = core_tools.tool(weather.function, parse_docstring=True)
    async with open_client(place, request) as client:
        model = chat_models.ChatOpenAI(
            model=MODEL,
            temperature=0,
            api_key="none",
            root_async_client=client,
            async_client=client.chat.completions,
        )
        whole = await model.ainvoke(CAPITAL)
        chunks = [chunk.content async for chunk in model.astream(CAPITAL)]
        with_tool = model.bind_tools([tool], strict=True)
        message = await with_tool.ainvoke(WEATHER)
        results = [await tool.ainvoke(call) for call in message.tool_calls]
        answer = await with_tool.ainvoke([("user", WEATHER), message, *results])
        parsed = await model.with_structured_output(Person).ainvoke(EXTRACT)

    assert "Rome" in whole.content
    assert "".join(chunks) == whole.content
    assert weather.cities == ["Rome"]
    assert "sunny" in answer.content
    assert parsed == MIA


@PLACES
@pytest.mark.sampled(1)
async def test_pydantic_ai(place: str, request: pytest.FixtureRequest) -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    weather = WeatherTool()
    async with open_client(place, request) as client:
        options: dict[str, Any] = {
            "model": models.OpenAIChatModel(
                MODEL, provider=providers.OpenAIProvider(openai_client=client)
            ),
            "model_settings": {"temperature": 0},
        }
        whole = await pydantic_ai.Agent(**options).run(CAPITAL)
        async with pydantic_ai.Agent(**options).run_stream(CAPITAL) as stream:
            text = "".join([part async for part in stream.stream_text(delta=True)])

        with_tool = pydantic_ai.Agent(tools=[weather.function], **options)
        answer = await with_tool.run(WEATHER)
        native = pydantic_ai.Agent(output_type=pydantic_ai.NativeOutput(Person), **options)
        parsed = await native.run(EXTRACT)
        by_tool = await pydantic_ai.Agent(output_type=Person, **options).run(EXTRACT)

    assert "Rome" in whole.output
    assert text == whole.output
    assert weather.cities == ["Rome"]
    assert "sunny" in answer.output
    assert parsed.output == by_tool.output == MIA


@PLACES
@pytest.mark.parametrize("api", ["OpenAIChatCompletionsModel", "OpenAIResponsesModel"])
@pytest.mark.sampled(1)
async def test_openai_agents(api: str, place: str, request: pytest.FixtureRequest) -> None:
    agents = pytest.importorskip("agents")
    weather = WeatherTool()
    async with open_client(place, request) as client:
        options: dict[str, Any] = {
            "name": "assistant",
            "model": getattr(agents, api)(model=MODEL, openai_client=client),
            "model_settings": agents.ModelSettings(temperature=0),
        }
        run = agents.Runner.run
        whole = await run(agents.Agent(**options), CAPITAL)
        stream = agents.Runner.run_streamed(agents.Agent(**options), CAPITAL)
        deltas = [
            event.data.delta
            async for event in stream.stream_events()
            if event.type == "raw_response_event"
            and event.data.type == "response.output_text.delta"
        ]
        tool = agents.function_tool(weather.function)
        answer = await run(agents.Agent(tools=[tool], **options), WEATHER)
        parsed = await run(agents.Agent(output_type=Person, **options), EXTRACT)

    assert "Rome" in whole.final_output
    assert "".join(deltas) == stream.final_output == whole.final_output
    assert weather.cities == ["Rome"]
    assert "sunny" in answer.final_output
    assert parsed.final_output == MIA


@pytest.mark.parametrize("block", BLOCKS, ids=range(1, len(BLOCKS) + 1))
@pytest.mark.sampled(2)
def test_block_of_the_page_answers(block: str, request: pytest.FixtureRequest) -> None:
    for package in re.findall(r"^(?:from|import) (\w+)", block, re.M):
        pytest.importorskip(package)

    assert "Rome" in run_block(block, request)
