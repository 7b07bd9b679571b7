"""`JSONFFIEngine`: JSON requests, JSON chunks, and errors as chunks."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aiomlc import BadRequestError, EngineDeadError, JSONFFIEngine, ModelLoadError
from aiomlc.api.json_ffi.engine import JSONStream
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.testing import FakeCore, fake_loader
from aiomlc.validation.json_values import NOT_UTF8

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
ZERO_USAGE = {
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "total_tokens": 0,
    "prompt_tokens_details": {"cached_tokens": 0},
}


@pytest.fixture(autouse=True)
def check_no_thread_left() -> Iterator[None]:
    yield
    assert "aiomlc engine" not in [thread.name for thread in threading.enumerate()]


def read_chunks(stream: JSONStream) -> list[dict[str, Any]]:
    return [chunk for text in stream for chunk in json.loads(text)]


def chat(request: str, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    with JSONFFIEngine(loader=fake_loader(**options)) as engine:
        return read_chunks(engine.chat_completion(request))


def hello_request(**fields: object) -> str:
    return json.dumps({"messages": HELLO, **fields})


def test_a_json_request_yields_lists_of_chunks_that_end_with_the_usage() -> None:
    chunks = chat(hello_request(model="m"), replies=["Hi!"])

    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "Hi!"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["model"] for chunk in chunks} == {"m"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 3
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


@pytest.mark.parametrize(
    ("request_json", "text"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "messages"),
        (hello_request(temperature=-1), "temperature"),
        (hello_request(temprature=1), "temprature"),
        (hello_request(request_id=3), "request_id"),
        (hello_request(stream=False), "JSONFFIEngine only support stream=True"),
        (hello_request(stream="no"), "stream"),
        (hello_request(extra_body={"stream": False}), "JSONFFIEngine only support stream=True"),
        (hello_request(model="\ud800"), f"model: {NOT_UTF8}"),
        (hello_request(**{"\ud800": 1}), r"\ud800: unknown field"),
        (hello_request(messages=[{"role": "user", "content": "\ud800"}]), "messages[0].content"),
        (hello_request(request_id="\ud800"), "request_id"),
        (hello_request(stream_options="yes"), "stream_options"),
        (hello_request(stream_options={"usage_stats": True}), "usage_stats"),
        (hello_request(stream_options={"include_obfuscation": True}), "include_obfuscation"),
        (hello_request(response_format={"type": "json_object", "schema": "[" * 100_000}), "schema"),
    ],
)
def test_an_error_is_a_chunk_that_the_usage_follows(request_json: str, text: str) -> None:
    error, usage = chat(request_json)

    choice = error["choices"][0]
    assert choice["finish_reason"] == "error"
    assert text in choice["delta"]["content"]
    assert (usage["choices"], usage["usage"]) == ([], ZERO_USAGE)
    assert usage["id"] == error["id"]


@pytest.mark.parametrize(
    "options",
    [
        {"stream_options": {"include_usage": False}},
        {"extra_body": {"stream_options": {"include_usage": False}}},
        {"extra_body": {"stream": None}},
    ],
)
def test_no_option_disables_the_usage(options: dict[str, Any]) -> None:
    chunks = chat(hello_request(**options), replies=["Hi!"])

    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 3


def test_surrogates_in_the_request_id_are_escaped() -> None:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        error, usage = read_chunks(engine.chat_completion(hello_request(), "\udfff"))

    assert error["id"] == usage["id"] == r"\udfff"
    assert "request_id" in error["choices"][0]["delta"]["content"]


def test_an_error_during_the_stream_is_a_chunk() -> None:
    engine = JSONFFIEngine(loader=fake_loader(replies=["x" * 10], dies_at_step=3))
    chunks = read_chunks(engine.chat_completion(hello_request()))
    with pytest.raises(EngineDeadError):
        engine.terminate()

    assert chunks[-2]["choices"][0]["finish_reason"] == "error"
    assert "scripted failure" in chunks[-2]["choices"][0]["delta"]["content"]
    assert chunks[-1]["usage"] == ZERO_USAGE


def test_create_yields_chunks_and_the_usage_if_requested() -> None:
    with JSONFFIEngine(loader=fake_loader(replies=["Hi!"])) as engine:
        create = engine.chat.completions.create
        without_usage = list(create(messages=HELLO))
        with_usage = list(create(messages=HELLO, stream_options={"include_usage": True}))
        invalid = list(create(messages=HELLO, temperature=-1))

    assert "".join(chunk.choices[0].delta.content or "" for chunk in without_usage) == "Hi!"
    assert all(chunk.usage is None for chunk in without_usage)
    assert with_usage[-1].usage is not None
    assert [chunk.choices[0].finish_reason for chunk in invalid] == ["error"]


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"stream_options": "yes"}, "stream_options"),
        ({"stream_options": {"usage_stats": True}}, "usage_stats"),
        ({"stream_options": {"include_obfuscation": True}}, "include_obfuscation"),
        ({"extra_body": {"stream": False}}, "stream=True"),
        ({"model": "\ud800"}, "model"),
        ({"stream": "no"}, "stream"),
    ],
)
def test_create_yields_errors_as_chunks(options: dict[str, Any], param: str) -> None:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        (chunk,) = engine.chat.completions.create(messages=HELLO, **options)

    assert chunk.choices[0].finish_reason == "error"
    assert param in (chunk.choices[0].delta.content or "")


def test_create_yields_the_usage_if_extra_body_requests_it() -> None:
    extra = {"stream_options": {"include_usage": True}}
    with JSONFFIEngine(loader=fake_loader(replies=["Hi!"])) as engine:
        chunks = list(engine.chat.completions.create(messages=HELLO, extra_body=extra))

    assert chunks[-1].usage is not None


def test_stream_false_is_rejected_with_mlc_llms_message() -> None:
    with (
        JSONFFIEngine(loader=fake_loader()) as engine,
        pytest.raises(ValueError, match=r"^JSONFFIEngine only support stream=True$"),
    ):
        engine.chat.completions.create(messages=HELLO, stream=False)


def test_abort_ends_the_stream_with_an_error_chunk() -> None:
    with JSONFFIEngine(loader=fake_loader(hand_stepped=True)) as engine:
        stream = engine.chat_completion(hello_request(), "mine")
        engine.abort("mine")
        chunks = read_chunks(stream)

    assert stream.request_id == "mine"
    assert {chunk["id"] for chunk in chunks} == {"mine"}
    assert chunks[0]["choices"][0]["finish_reason"] == "error"


@pytest.mark.parametrize("how", ["close", "drop"])
def test_leaving_a_stream_early_cancels_the_request(how: str) -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    with JSONFFIEngine(loader=fake_loader(core)) as engine:
        core.allow(1)
        chunks = engine.chat.completions.create(messages=HELLO)
        next(chunks)
        if how == "drop":
            del chunks
            gc.collect()
        else:
            with engine.chat_completion(hello_request()):
                assert core.cancelled == []
            chunks.close()  # type: ignore[attr-defined]

        assert sorted(core.cancelled) == ([1] if how == "drop" else [1, 2])


def test_metrics_and_terminate_are_those_of_the_blocking_engine() -> None:
    engine = JSONFFIEngine(loader=fake_loader(replies=["Hi!"]))
    list(engine.chat.completions.create(messages=HELLO))

    assert repr(engine) == "<JSONFFIEngine bundled model>"
    assert engine.metrics()["completion_tokens_sum"] == 3
    engine.terminate()
    engine.terminate()
    closed = read_chunks(engine.chat_completion(hello_request()))
    assert "terminated" in closed[0]["choices"][0]["delta"]["content"]


def test_the_private_methods_of_mlc_llm_exist() -> None:
    with JSONFFIEngine(loader=fake_loader(replies=["Hi!"])) as engine:
        chat = engine._raw_chat_completion
        without_usage = list(chat(hello_request(), include_usage=False, request_id="mine"))
        with_usage = list(chat(hello_request(), include_usage=True, request_id="mine"))
        invalid = list(chat("{", include_usage=True, request_id="bad"))
        engine._test_reset()
        completion_tokens = engine.metrics()["completion_tokens_sum"]
        engine._test_unload()
        unloaded = list(chat(hello_request(), include_usage=False, request_id="mine"))
        engine._test_reload()
        reloaded = list(chat(hello_request(), include_usage=False, request_id="mine"))

    assert {chunk.id for chunk in without_usage} == {"mine"}
    assert all(chunk.usage is None for chunk in without_usage)
    assert with_usage[-1].usage is not None
    assert [chunk.id for chunk in invalid] == ["bad", "bad"]
    assert completion_tokens == 0
    assert [chunk.choices[0].finish_reason for chunk in unloaded] == ["error"]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in reloaded) == "Hi!"


def test_constructor_errors_are_raised() -> None:
    async def load(model: object, **_: object) -> LoadedModel:
        raise ModelLoadError("no such file")

    with pytest.raises(ModelLoadError):
        JSONFFIEngine(loader=load)

    with pytest.raises(BadRequestError):
        JSONFFIEngine(device="metal")


def test_the_engine_has_the_tokenizer() -> None:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        assert engine.tokenizer.decode(engine.tokenizer.encode("Hi")) == "Hi"


def test_every_chunk_has_the_fields_that_mlc_llms_clients_require() -> None:
    with JSONFFIEngine(loader=fake_loader(replies=["Hi!"])) as engine:
        chunks = list(engine.chat.completions.create(messages=[{"role": "user", "content": "Hi"}]))

    assert {chunk.system_fingerprint for chunk in chunks} == {""}
    assert {choice.delta.role for chunk in chunks for choice in chunk.choices} == {"assistant"}
