"""MLC LLM's tests of its server, written anew from their descriptions, against `aiomlc serve`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.serve_process import ServerProcess, run_server
from tests.e2e.test_tools import QUESTION, WEATHER

pytestmark = pytest.mark.timeout(120)
CAPITAL: list[Any] = [{"role": "user", "content": "What is the capital of Italy?"}]
STORY: list[Any] = [{"role": "user", "content": "Tell me a story about a fox called Rosa."}]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of the bundled model."""
    directory = tmp_path_factory.mktemp("server")
    with run_server(directory, "--enable-debug", "--enable-tracing") as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    """OpenAI's client."""
    with server.openai() as client:
        yield client


def chat(client: openai.OpenAI, messages: list[Any], **options: Any) -> Any:  # noqa: ANN401
    """Return a chat completion at temperature 0."""
    return client.chat.completions.create(
        messages=messages, model="pebble", **{"temperature": 0, **options}
    )


def content(completion: Any) -> str:  # noqa: ANN401
    """Return the text of a chat completion."""
    text: str = completion.choices[0].message.content
    return text


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["pebble"]
    assert client.models.retrieve("pebble").object == "model"


@pytest.mark.parametrize("stream", [False, True])
def test_chat_completion(client: openai.OpenAI, stream: bool) -> None:
    if stream:
        chunks = list(chat(client, CAPITAL, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert chunks[-1].usage.completion_tokens > 0
    else:
        text = content(chat(client, CAPITAL))

    assert "Rome" in text


@pytest.mark.parametrize("stream", [False, True])
def test_text_completion(client: openai.OpenAI, stream: bool) -> None:
    created: Any = client.completions.create(
        model="pebble", prompt="Count: 1, 2, 3,", max_tokens=8, temperature=0, stream=stream
    )
    completions = list(created) if stream else [created]
    assert "".join(completion.choices[0].text for completion in completions)
    assert completions[-1].choices[0].finish_reason == "length"


def test_echo_precedes_the_completion(client: openai.OpenAI) -> None:
    completion = client.completions.create(
        model="pebble", prompt="Once upon a time", max_tokens=4, echo=True
    )
    assert completion.choices[0].text.startswith("Once upon a time")


def test_suffix_needs_a_model_with_its_tokens(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="fill-in-the-middle"):
        client.completions.create(model="pebble", prompt="a", suffix="b")


def test_stop_string_ends_the_text(client: openai.OpenAI) -> None:
    whole = content(chat(client, CAPITAL))
    completion = chat(client, CAPITAL, stop=[whole[5:8]])
    assert completion.choices[0].finish_reason == "stop"
    assert content(completion) == whole[: whole.index(whole[5:8])]


def test_temperature_and_seed(client: openai.OpenAI) -> None:
    greedy = {content(chat(client, STORY, max_tokens=20)) for _ in range(2)}
    seeded = {content(chat(client, STORY, max_tokens=20, temperature=1, seed=3)) for _ in range(2)}
    other = content(chat(client, STORY, max_tokens=20, temperature=1, seed=4))
    assert len(greedy) == len(seeded) == 1
    assert other not in seeded


def test_json_object_and_schema(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Extract the person: Mia is 31 years old."}]
    anything = chat(client, messages, response_format={"type": "json_object"}, max_tokens=60)
    schema = {"name": "person", "schema": PERSON, "strict": True}
    person = chat(client, messages, response_format={"type": "json_schema", "json_schema": schema})
    if anything.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(content(anything)), dict)
    assert json.loads(content(person)).keys() == {"name", "age"}


def test_logit_bias_bans_a_token(client: openai.OpenAI, server: ServerProcess) -> None:
    with server.http() as http:
        tokens = http.post("/tokenize", json={"prompt": content(chat(client, CAPITAL))}).json()

    bias = {str(tokens["tokens"][0]): -100}
    assert content(chat(client, CAPITAL, logit_bias=bias)) != content(chat(client, CAPITAL))


@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
def test_penalties_change_the_text_and_have_a_range(client: openai.OpenAI, name: str) -> None:
    chat(client, STORY, max_tokens=20, **{name: 2.0})
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, STORY, **{name: 2.1})

    assert caught.value.param == name


def test_logprobs(client: openai.OpenAI) -> None:
    completion = chat(client, CAPITAL, logprobs=True, top_logprobs=2, max_tokens=3)
    tokens = completion.choices[0].logprobs.content
    assert len(tokens) == 3
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in tokens)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"store": True}, "store"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"extra_body": {"function_call": "auto"}}, "function_call"),
    ],
)
def test_invalid_and_unsupported_fields(
    client: openai.OpenAI, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, CAPITAL, **options)

    assert caught.value.param == param


def test_overlong_prompt(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, [{"role": "user", "content": "hello " * 20_000}])

    assert caught.value.code == "context_length_exceeded"


def test_choices(client: openai.OpenAI) -> None:
    completion = chat(client, STORY, n=3, temperature=1, seed=1, max_tokens=60)
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in completion.choices}) == 3


def test_max_tokens_and_ignore_eos(client: openai.OpenAI) -> None:
    body = {"debug_config": {"ignore_eos": True}}
    completion = chat(client, CAPITAL, max_tokens=100, extra_body=body)
    assert completion.usage.completion_tokens == 100
    assert completion.choices[0].finish_reason == "length"


def test_server_survives_clients_that_time_out(
    client: openai.OpenAI, server: ServerProcess
) -> None:
    with pytest.raises(openai.APITimeoutError):
        chat(client, STORY, max_tokens=1900, extra_body={"ignore_eos": True}, timeout=0.05)

    server.wait_for("vllm:num_requests_running", 0)
    assert "Rome" in content(chat(client, CAPITAL))


def test_client_that_leaves_a_stream_frees_its_pages(
    client: openai.OpenAI, server: ServerProcess
) -> None:
    with chat(client, STORY, stream=True, max_tokens=1900, extra_body={"ignore_eos": True}) as s:
        next(iter(s))
        server.wait_for("vllm:num_requests_running", 1)

    server.wait_for("vllm:num_requests_running", 0)
    server.wait_for("vllm:kv_cache_usage_perc", 0)


@pytest.mark.parametrize("stream", [False, True])
def test_function_call(client: openai.OpenAI, stream: bool) -> None:
    if stream:
        with client.chat.completions.stream(
            model="pebble",
            messages=[QUESTION],  # type: ignore[list-item]
            tools=[WEATHER],  # type: ignore[list-item]
            temperature=0,
        ) as events:
            completion: Any = events.get_final_completion()
    else:
        completion = chat(client, [QUESTION], tools=[WEATHER])

    (call,) = completion.choices[0].message.tool_calls
    assert completion.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Rome"}


def test_function_choice(client: openai.OpenAI) -> None:
    none = chat(client, [QUESTION], tools=[WEATHER], tool_choice="none", max_tokens=20)
    named = {"type": "function", "function": {"name": "get_weather"}}
    forced = chat(client, CAPITAL, tools=[WEATHER], tool_choice=named)
    assert none.choices[0].message.tool_calls is None
    assert forced.choices[0].message.tool_calls[0].function.name == "get_weather"
    named["function"] = {"name": "other"}
    with pytest.raises(openai.BadRequestError):
        chat(client, CAPITAL, tools=[WEATHER], tool_choice=named)


def test_responses(client: openai.OpenAI) -> None:
    response = client.responses.create(model="pebble", input=CAPITAL, temperature=0)
    with client.responses.stream(model="pebble", input=CAPITAL, temperature=0) as events:
        streamed = events.get_final_response()

    assert "Rome" in response.output_text
    assert streamed.output_text == response.output_text


def test_debug_endpoints(server: ServerProcess, client: openai.OpenAI) -> None:
    chat(client, CAPITAL)
    with server.http() as http:
        trace = http.post("/debug/dump_event_trace", json={"model": "pebble"}).json()
        metrics = http.post("/debug/dump_engine_metrics", json={"model": "pebble"}).json()
        text = http.get("/metrics").text

    assert len(trace["traceEvents"]) > 10
    assert metrics["completion_tokens_sum"] > 0
    assert "engine_decode_time_sum" in text
