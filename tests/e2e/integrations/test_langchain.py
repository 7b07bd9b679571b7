"""LangChain's chat model on an engine; LangChain runs on asyncio only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, BadRequestError, MLCEngine
from tests.e2e.integrations.asked import CAPITAL, EXTRACT, STORY, WEATHER, Person, ask, get_weather
from tests.e2e.waiting import wait_until

tools = pytest.importorskip("langchain_core.tools")
langchain = pytest.importorskip("aiomlc.integrations.langchain")
pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def without_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send nothing to the network."""
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


async def test_answers_are_those_of_the_engine() -> None:
    async with AsyncMLCEngine() as engine:
        expected = await ask(engine, CAPITAL)
        model = langchain.ChatAiomlc(engine=engine, temperature=0)
        whole = await model.ainvoke(CAPITAL)
        chunks = [chunk async for chunk in model.astream(CAPITAL)]
        batch = await model.abatch([CAPITAL, CAPITAL], stop=[" "])

    text = expected.choices[0].message.content
    assert text
    assert whole.content == "".join(chunk.content for chunk in chunks) == text
    assert whole.response_metadata["finish_reason"] == "stop"
    assert [answer.content for answer in batch] == [text.split(" ")[0]] * 2
    assert expected.usage is not None
    for metadata in (whole.usage_metadata, chunks[-1].usage_metadata):
        assert metadata["input_tokens"] == expected.usage.prompt_tokens
        assert metadata["output_tokens"] == expected.usage.completion_tokens


async def test_a_tool_loop() -> None:
    cities: list[str] = []
    tool = tools.tool(get_weather(cities), parse_docstring=True)
    async with AsyncMLCEngine() as engine:
        model = langchain.ChatAiomlc(engine=engine, temperature=0)
        with_tool = model.bind_tools([tool], strict=True)
        forced = model.bind_tools([tool], strict=True, tool_choice="get_weather")
        message = await forced.ainvoke(WEATHER)
        results = [await tool.ainvoke(call) for call in message.tool_calls]
        answer = await with_tool.ainvoke([("user", WEATHER), message, *results])

    assert message.response_metadata["finish_reason"] == "tool_calls"
    assert [call["name"] for call in message.tool_calls] == ["get_weather"]
    assert cities == [message.tool_calls[0]["args"]["city"]]
    assert answer.usage_metadata["input_tokens"] > message.usage_metadata["input_tokens"]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
async def test_structured_answers(method: str) -> None:
    async with AsyncMLCEngine() as engine:
        model = langchain.ChatAiomlc(engine=engine, temperature=0)
        asked = {"method": method, "include_raw": True}
        answer = await model.with_structured_output(Person, **asked).ainvoke(EXTRACT)
        schema: Any = {"title": "Person", **Person.model_json_schema()}
        as_dict = await model.with_structured_output(schema, method=method).ainvoke(EXTRACT)
        short = langchain.ChatAiomlc(engine=engine, max_tokens=1)
        cut = await short.with_structured_output(Person, include_raw=True).ainvoke(EXTRACT)

    assert isinstance(answer["parsed"], Person)
    assert answer["parsed"] == Person(**as_dict)
    if method == "json_schema":
        assert Person(**json.loads(answer["raw"].content)) == answer["parsed"]

    assert cut["parsed"] is None
    assert isinstance(cut["parsing_error"], ValueError)


async def test_log_probabilities_are_in_the_metadata() -> None:
    async with AsyncMLCEngine() as engine:
        fields = {"logprobs": True, "top_logprobs": 2}
        model = langchain.ChatAiomlc(engine=engine, max_tokens=3, model_kwargs=fields)
        answer = await model.ainvoke(CAPITAL)

    tokens = answer.response_metadata["logprobs"]["content"]
    assert [len(token["top_logprobs"]) for token in tokens] == [2, 2, 2]


async def test_leaving_a_stream_early_aborts_its_request() -> None:
    async with AsyncMLCEngine() as engine:
        model = langchain.ChatAiomlc(engine=engine, max_tokens=1900).bind(ignore_eos=True)
        stream = model.astream(STORY)
        await anext(stream)
        assert engine.statistics().num_running == 1
        await stream.aclose()
        await wait_until(lambda: engine.statistics().finished["abort"] == 1)


async def test_cancelling_a_call_aborts_its_request() -> None:
    async with AsyncMLCEngine() as engine:
        await engine.metrics()
        model = langchain.ChatAiomlc(engine=engine, max_tokens=1900).bind(ignore_eos=True)
        async with create_task_group() as tasks:
            tasks.start_soon(model.ainvoke, STORY)
            await wait_until(lambda: engine.statistics().num_running == 1)
            tasks.cancel_scope.cancel()

        await wait_until(lambda: engine.statistics().finished["abort"] == 1)


def test_blocking_methods_need_a_blocking_engine() -> None:
    with MLCEngine() as engine:
        model = langchain.ChatAiomlc(engine=engine, temperature=0)
        whole = model.invoke(CAPITAL)
        assert "".join(chunk.content for chunk in model.stream(CAPITAL)) == whole.content
        next(stream := model.stream(STORY))
        stream.close()

    with pytest.raises(BadRequestError, match="must be an MLCEngine for blocking methods"):
        langchain.ChatAiomlc(engine=AsyncMLCEngine()).invoke(CAPITAL)


async def test_several_choices_are_refused() -> None:
    async with AsyncMLCEngine() as engine:
        model = langchain.ChatAiomlc(engine=engine)
        with pytest.raises(BadRequestError, match="n: must be 1, got 2") as caught:
            await model.ainvoke(CAPITAL, n=2)

    assert caught.value.param == "n"


async def test_unknown_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="temprature"):
        langchain.ChatAiomlc(engine=AsyncMLCEngine("mock://echo"), temprature=0)
