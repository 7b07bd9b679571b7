"""OpenAI's clients in process, and against a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from aiomlc import AsyncMLCEngine, MLCEngine
from aiomlc.serve import openai_client
from tests.e2e.programs import run_program
from tests.e2e.serve_process import ServerProcess, open_client, run_server
from tests.e2e.test_tools import QUESTION, WEATHER
from tests.e2e.waiting import wait_until
from tests.model.tiny_encoder import write_encoder

pytestmark = [
    pytest.mark.timeout(120),
    # OpenAI's streams leave their generators to the garbage collector, of which trio warns.
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]
CAPITAL: list[Any] = [{"role": "user", "content": "What is the capital of Italy?"}]
STORY: list[Any] = [{"role": "user", "content": "Tell me a story about a fox called Rosa."}]
EXTRACT: list[Any] = [{"role": "user", "content": "Extract the person: Mia is 31 years old."}]
LONG: dict[str, Any] = {"max_tokens": 1900, "extra_body": {"ignore_eos": True}}
RESULT = '{"weather": "sunny"}'
PLACES = ("in process", "server")


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of the bundled model."""
    with run_server(tmp_path_factory.mktemp("clients")) as process:
        yield process


def text_of(chunks: list[Any]) -> str:
    """Return the text of the chunks of a chat completion."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@pytest.mark.parametrize("place", PLACES)
async def test_open_client(place: str, request: pytest.FixtureRequest) -> None:
    asked: dict[str, Any] = {"model": "pebble", "temperature": 0}
    async with open_client(place, request) as client:
        models = [model.id async for model in client.models.list()]
        whole = await client.chat.completions.create(messages=CAPITAL, **asked)
        stream: Any = await client.chat.completions.create(messages=CAPITAL, stream=True, **asked)
        chunks = [chunk async for chunk in stream]
        parsed = await client.chat.completions.parse(
            messages=EXTRACT, response_format=Person, **asked
        )
        response = await client.responses.create(input=CAPITAL, **asked)
        async with client.responses.stream(input=CAPITAL, **asked) as events:
            streamed = await events.get_final_response()

    assert models == ["pebble"]
    assert whole.choices[0].message.content == text_of(chunks) == response.output_text
    assert "Rome" in text_of(chunks)
    assert parsed.choices[0].message.parsed == Person(name="Mia", age=31)
    assert streamed.output_text == response.output_text


@pytest.mark.parametrize("place", PLACES)
async def test_async_client_calls_tools(place: str, request: pytest.FixtureRequest) -> None:
    asked: dict[str, Any] = {"model": "pebble", "temperature": 0, "tools": [WEATHER]}
    messages: list[Any] = [QUESTION]
    async with open_client(place, request) as client:
        completion = await client.chat.completions.create(messages=messages, **asked)
        message = completion.choices[0].message
        assert message.tool_calls is not None
        (call,) = message.tool_calls
        result: Any = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
        answer = await client.chat.completions.create(
            messages=[*messages, message, result], **asked
        )

    assert json.loads(call.function.arguments) == {"city": "Rome"}
    assert "sunny" in (answer.choices[0].message.content or "")


def test_blocking_client() -> None:
    asked: dict[str, Any] = {"model": "pebble", "temperature": 0}
    with MLCEngine() as engine, engine.openai_client() as client:
        models = [model.id for model in client.models.list()]
        whole = client.chat.completions.create(messages=CAPITAL, **asked)
        chunks = list(client.chat.completions.create(messages=CAPITAL, stream=True, **asked))
        parsed = client.chat.completions.parse(messages=EXTRACT, response_format=Person, **asked)
        response = client.responses.create(input=CAPITAL, **asked)

    assert models == ["pebble"]
    assert whole.choices[0].message.content == text_of(chunks) == response.output_text
    assert parsed.choices[0].message.parsed == Person(name="Mia", age=31)


async def test_leaving_a_stream_early_aborts_its_request() -> None:
    async with AsyncMLCEngine() as engine, engine.openai_client() as client:
        stream: Any = await client.chat.completions.create(
            model="pebble", messages=STORY, stream=True, **LONG
        )
        async with stream:
            await anext(aiter(stream))
            assert engine.statistics().num_running == 1

        await wait_until(lambda: engine.statistics().finished["abort"] == 1)
        await wait_until(lambda: engine.statistics().num_running == 0)


def test_leaving_a_blocking_stream_early_aborts_its_request() -> None:
    with MLCEngine() as engine, engine.openai_client() as client:
        with client.chat.completions.create(
            model="pebble", messages=STORY, stream=True, **LONG
        ) as stream:
            next(iter(stream))
            assert engine.statistics().num_running == 1

        while not engine.statistics().finished["abort"]:
            client.models.list()


async def test_two_streams_may_be_left_in_any_order() -> None:
    async with AsyncMLCEngine() as engine, engine.openai_client() as client:
        streams: list[Any] = [
            await client.chat.completions.create(
                model="pebble", messages=STORY, stream=True, **LONG
            )
            for _ in range(2)
        ]
        for stream in streams:
            await anext(aiter(stream))

        for stream in streams:
            await stream.close()

        await wait_until(lambda: engine.statistics().finished["abort"] == 2)


async def test_a_time_out_aborts_the_request() -> None:
    async with AsyncMLCEngine() as engine, engine.openai_client() as client:
        await engine.metrics()
        impatient = client.with_options(timeout=0.05, max_retries=0)
        with pytest.raises(openai.APITimeoutError):
            await impatient.chat.completions.create(model="pebble", messages=STORY, **LONG)

        await wait_until(lambda: engine.statistics().num_running == 0)
        assert engine.statistics().finished["length"] == 0


async def test_errors_have_openais_types() -> None:
    async with AsyncMLCEngine() as engine, engine.openai_client() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="pebble", messages=CAPITAL, top_logprobs=21)

    assert caught.value.param == "top_logprobs"


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async with AsyncMLCEngine(model_lib="mock://echo") as engine, engine.openai_client() as client:
        assert [model.id async for model in client.models.list()] == ["mock://echo"]


async def test_several_models(tmp_path: Path) -> None:
    encoder = AsyncMLCEngine(write_encoder(tmp_path / "encoder"))
    async with AsyncMLCEngine() as engine, encoder:
        client = openai_client({"pebble": engine, "encoder": encoder})
        embeddings = await client.embeddings.create(model="encoder", input=["abc", "xyz"])
        whole = await client.chat.completions.create(model="pebble", messages=CAPITAL)

    assert [len(item.embedding) for item in embeddings.data] == [48, 48]
    assert whole.choices[0].message.content


@pytest.mark.parametrize("name", ["openai", "httpx2", "starlette"])
def test_a_missing_package_is_named(name: str) -> None:
    program = f"import sys, aiomlc; sys.modules[{name!r}] = None\n"
    result = run_program(["-c", f"{program}aiomlc.AsyncMLCEngine().openai_client()"])

    last = result.stderr.splitlines()[-1]
    assert last.startswith("aiomlc.errors.MissingPackageError")
    assert last.endswith(f"the package {name} is missing: pip install 'aiomlc[openai]'")
