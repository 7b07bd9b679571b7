"""JSON in, JSON out, and every error as a chunk."""

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

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
NOTHING = {
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "total_tokens": 0,
    "prompt_tokens_details": {"cached_tokens": 0},
}


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    assert "aiomlc engine" not in [thread.name for thread in threading.enumerate()]


def chunks_of(stream: JSONStream) -> list[dict[str, Any]]:
    return [chunk for text in stream for chunk in json.loads(text)]


def ask(request: str, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    with JSONFFIEngine(loader=fake_loader(**options)) as engine:
        return chunks_of(engine.chat_completion(request))


def hello(**fields: object) -> str:
    return json.dumps({"messages": HELLO, **fields})


def test_json_text_is_answered_with_lists_of_chunks_that_end_with_the_usage() -> None:
    chunks = ask(hello(model="m"), replies=["Hi!"])

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
        (hello(temperature=-1), "temperature"),
        (hello(temprature=1), "temprature"),
        (hello(request_id=3), "request_id"),
        (hello(stream=False), "JSONFFIEngine only support stream=True"),
        (hello(stream="no"), "stream"),
        (hello(extra_body={"stream": False}), "JSONFFIEngine only support stream=True"),
        (hello(model="\ud800"), "model: has half of a surrogate pair"),
        (hello(**{"\ud800": 1}), r"\ud800: is not a known field"),
        (hello(messages=[{"role": "user", "content": "\ud800"}]), "messages[0].content"),
        (hello(request_id="\ud800"), "request_id"),
        (hello(stream_options="yes"), "stream_options"),
        (hello(stream_options={"continuous_usage_stats": True}), "continuous_usage_stats"),
        (hello(stream_options={"include_obfuscation": True}), "include_obfuscation"),
        (hello(response_format={"type": "json_object", "schema": "[" * 100_000}), "schema"),
    ],
)
def test_an_error_is_a_chunk_and_the_usage_ends_it_all_the_same(
    request_json: str, text: str
) -> None:
    error, usage = ask(request_json)

    choice = error["choices"][0]
    assert choice["finish_reason"] == "error"
    assert text in choice["delta"]["content"]
    assert (usage["choices"], usage["usage"]) == ([], NOTHING)
    assert usage["id"] == error["id"]


@pytest.mark.parametrize(
    "options",
    [
        {"stream_options": {"include_usage": False}},
        {"extra_body": {"stream_options": {"include_usage": False}}},
        {"extra_body": {"stream": None}},
    ],
)
def test_no_option_takes_the_usage_away(options: dict[str, Any]) -> None:
    chunks = ask(hello(**options), replies=["Hi!"])

    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 3


def test_an_id_that_is_no_text_is_told_escaped() -> None:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        error, usage = chunks_of(engine.chat_completion(hello(), "\udfff"))

    assert error["id"] == usage["id"] == r"\udfff"
    assert "request_id" in error["choices"][0]["delta"]["content"]


def test_an_error_in_the_middle_is_a_chunk_too() -> None:
    engine = JSONFFIEngine(loader=fake_loader(replies=["x" * 10], dies_at_step=3))
    chunks = chunks_of(engine.chat_completion(hello()))
    with pytest.raises(EngineDeadError):
        engine.terminate()

    assert chunks[-2]["choices"][0]["finish_reason"] == "error"
    assert "the script says so" in chunks[-2]["choices"][0]["delta"]["content"]
    assert chunks[-1]["usage"] == NOTHING


def test_create_gives_chunks_and_the_usage_where_it_was_asked_for() -> None:
    with JSONFFIEngine(loader=fake_loader(replies=["Hi!"])) as engine:
        create = engine.chat.completions.create
        plain = list(create(messages=HELLO))
        counted = list(create(messages=HELLO, stream_options={"include_usage": True}))
        failed = list(create(messages=HELLO, temperature=-1))

    assert "".join(chunk.choices[0].delta.content or "" for chunk in plain) == "Hi!"
    assert all(chunk.usage is None for chunk in plain)
    assert counted[-1].usage is not None
    assert [chunk.choices[0].finish_reason for chunk in failed] == ["error"]


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"stream_options": "yes"}, "stream_options"),
        ({"stream_options": {"continuous_usage_stats": True}}, "continuous_usage_stats"),
        ({"stream_options": {"include_obfuscation": True}}, "include_obfuscation"),
        ({"extra_body": {"stream": False}}, "stream=True"),
        ({"model": "\ud800"}, "model"),
        ({"stream": "no"}, "stream"),
    ],
)
def test_create_tells_every_error_but_one_in_a_chunk(options: dict[str, Any], param: str) -> None:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        (chunk,) = engine.chat.completions.create(messages=HELLO, **options)

    assert chunk.choices[0].finish_reason == "error"
    assert param in (chunk.choices[0].delta.content or "")


def test_create_finds_the_wish_for_the_usage_in_the_extra_body_too() -> None:
    extra = {"stream_options": {"include_usage": True}}
    with JSONFFIEngine(loader=fake_loader(replies=["Hi!"])) as engine:
        chunks = list(engine.chat.completions.create(messages=HELLO, extra_body=extra))

    assert chunks[-1].usage is not None


def test_whole_answers_are_refused_in_upstreams_words() -> None:
    with (
        JSONFFIEngine(loader=fake_loader()) as engine,
        pytest.raises(ValueError, match=r"^JSONFFIEngine only support stream=True$"),
    ):
        engine.chat.completions.create(messages=HELLO, stream=False)


def test_abort_ends_an_answer_with_an_error_chunk() -> None:
    with JSONFFIEngine(loader=fake_loader(hand_stepped=True)) as engine:
        stream = engine.chat_completion(hello(), "mine")
        engine.abort("mine")
        chunks = chunks_of(stream)

    assert stream.request_id == "mine"
    assert {chunk["id"] for chunk in chunks} == {"mine"}
    assert chunks[0]["choices"][0]["finish_reason"] == "error"


@pytest.mark.parametrize("how", ["close", "drop"])
def test_leaving_an_answer_early_cancels_it(how: str) -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    with JSONFFIEngine(loader=fake_loader(core)) as engine:
        core.allow(1)
        chunks = engine.chat.completions.create(messages=HELLO)
        next(chunks)
        if how == "drop":
            del chunks
            gc.collect()
        else:
            with engine.chat_completion(hello()):
                assert core.cancelled == []
            chunks.close()  # type: ignore[attr-defined]

        assert sorted(core.cancelled) == ([1] if how == "drop" else [1, 2])


def test_the_rest_is_the_blocking_engines() -> None:
    engine = JSONFFIEngine(loader=fake_loader(replies=["Hi!"]))
    list(engine.chat.completions.create(messages=HELLO))

    assert repr(engine) == "<JSONFFIEngine bundled model>"
    assert engine.metrics()["completion_tokens_sum"] == 3
    engine.terminate()
    engine.terminate()
    closed = chunks_of(engine.chat_completion(hello()))
    assert "terminated" in closed[0]["choices"][0]["delta"]["content"]


def test_upstreams_programs_find_its_unofficial_names() -> None:
    with JSONFFIEngine(loader=fake_loader(replies=["Hi!"])) as engine:
        ask = engine._raw_chat_completion
        plain = list(ask(hello(), include_usage=False, request_id="mine"))
        counted = list(ask(hello(), include_usage=True, request_id="mine"))
        failed = list(ask("{", include_usage=True, request_id="bad"))
        engine._test_reset()
        completion_tokens = engine.metrics()["completion_tokens_sum"]
        engine._test_unload()
        unloaded = list(ask(hello(), include_usage=False, request_id="mine"))
        engine._test_reload()
        reloaded = list(ask(hello(), include_usage=False, request_id="mine"))

    assert {chunk.id for chunk in plain} == {"mine"}
    assert all(chunk.usage is None for chunk in plain)
    assert counted[-1].usage is not None
    assert [chunk.id for chunk in failed] == ["bad", "bad"]
    assert completion_tokens == 0
    assert [chunk.choices[0].finish_reason for chunk in unloaded] == ["error"]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in reloaded) == "Hi!"


def test_a_constructor_that_fails_raises() -> None:
    async def load(model: object, **_: object) -> LoadedModel:
        raise ModelLoadError("no such file")

    with pytest.raises(ModelLoadError):
        JSONFFIEngine(loader=load)

    with pytest.raises(BadRequestError):
        JSONFFIEngine(device="cuda")
