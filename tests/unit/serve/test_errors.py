"""Every error status, in OpenAI's shape."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx2
import pytest
from anyio import create_task_group, fail_after, sleep, sleep_forever
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from aiomlc import AsyncMLCEngine, ModelLoadError
from aiomlc.errors import (
    AiomlcError,
    BadRequestError,
    DeadlineExceededError,
    DuplicateRequestError,
    EngineClosedError,
    EngineDeadError,
    EngineDrainingError,
    EngineOverloadedError,
    InputTooLongError,
    PromptTooLongError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.serve import ServerOptions, create_app
from aiomlc.serve.http import http_errors, memory, request_body
from aiomlc.serve.http.http_errors import to_http_error
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader
from tests.unit.serve.asgi import CHAT, ManualRequest, events_of, http_client, serving

pytestmark = pytest.mark.timeout(30)
PATH = "/v1/chat/completions"


def error_of(response: httpx2.Response) -> dict[str, Any]:
    """Return the error of a response, after a check of its shape."""
    body = response.json()
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BadRequestError("a: is wrong", param="a"), 400, None),
        (PromptTooLongError(prompt_tokens=9, context_window=8), 400, "context_length_exceeded"),
        (
            InputTooLongError(index=0, num_tokens=9, max_tokens=8),
            400,
            "context_length_exceeded",
        ),
        (DuplicateRequestError("a"), 409, "duplicate_request_id"),
        (DeadlineExceededError("a", limit="timeout", seconds=1), 408, "timeout"),
        (RequestAbortedError("a"), 499, "request_aborted"),
        (EngineOverloadedError("full"), 429, "engine_overloaded"),
        (EngineDrainingError("draining"), 503, "draining"),
        (EngineClosedError(), 503, "engine_unavailable"),
        (EngineDeadError("dead"), 503, "engine_unavailable"),
        (RequestFailedError("failed"), 500, "request_failed"),
        (ModelLoadError("no /secret/path"), 500, "model_error"),
    ],
)
def test_status_of_each_exception(error: AiomlcError, status: int, code: str | None) -> None:
    answer = to_http_error(error)
    assert (answer.status, answer.code) == (status, code)
    assert ("retry-after" in answer.headers) == (code in ("engine_overloaded", "draining"))
    assert "/secret" not in answer.message


def test_lone_surrogates_of_a_message_are_escaped() -> None:
    json.dumps(to_http_error(BadRequestError("\ud800")).body()).encode()
    assert to_http_error(BadRequestError("\ud800")).message == "\\ud800"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "messages"),
        ({"messages": "a"}, "messages"),
        ({**CHAT, "temperature": -1}, "temperature"),
        ({**CHAT, "temprature": 1}, "temprature"),
        ({**CHAT, "n": 17}, "n"),
        ({**CHAT, "prompt": ["a"] * 17}, "prompt"),
        ({**CHAT, "prompt": ["a"] * 16, "n": 2}, "n"),
        ({**CHAT, "functions": [{}]}, "functions"),
        ({**CHAT, "logits_processors": []}, "logits_processors"),
        ({**CHAT, "extra_body": {}}, "extra_body"),
        ({**CHAT, "model": 7, "stream": True}, "model"),
        ({**CHAT, "stream": "yes"}, "stream"),
    ],
)
async def test_invalid_fields_are_400_and_named(fields: dict[str, Any], param: str) -> None:
    async with serving() as (_, client):
        response = await client.post(PATH, json=fields)

    assert response.status_code == 400
    error = error_of(response)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (PATH, {**CHAT, "temperature": -1}),
        ("/v1/completions", {"prompt": "a", "n": "b"}),
        ("/v1/responses", {"input": 1}),
        ("/v1/embeddings", {"input": {}}),
        ("/tokenize", {"prompt": 1}),
        ("/tokenize", {"messages": 1}),
        ("/detokenize", {"tokens": "a"}),
    ],
)
async def test_invalid_requests_do_not_open_a_model(path: str, fields: dict[str, Any]) -> None:
    async def load(*_: object, **__: object) -> Any:  # noqa: ANN401
        raise AssertionError("the model was opened")

    engine = AsyncMLCEngine(loader=load)
    async with http_client(create_app({"fake": engine})) as client:
        assert (await client.post(path, json=fields)).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"a"',
        b"\xff",
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b'{"messages": ' + b"[" * 500 + b"]" * 500 + b"}",
    ],
)
async def test_bodies_that_are_not_a_json_object_are_400(body: bytes) -> None:
    async with serving() as (_, client):
        response = await client.post(
            PATH, content=body, headers={"content-type": "application/json"}
        )

    assert response.status_code == 400
    error_of(response)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_other_content_types_are_415(kind: str | None) -> None:
    async with serving() as (_, client):
        headers = {} if kind is None else {"content-type": kind}
        response = await client.post(PATH, content=json.dumps(CHAT).encode(), headers=headers)

    assert response.status_code == 415
    assert "application/json" in error_of(response)["message"]


async def test_bodies_beyond_the_limit_are_413_with_and_without_a_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received: list[int] = []

    async def receive() -> Message:
        await checkpoint()
        received.append(100)
        return {"type": "http.request", "body": b" " * 100, "more_body": True}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async with serving(max_body_size=1000) as (app, client):
        headers = {"content-type": "application/json"}
        declared = await client.post(PATH, content=b" " * 1001, headers=headers)
        monkeypatch.setattr(http_errors, "_MAX_DROPPED", 500)
        await app(ManualRequest(app, PATH, CHAT).scope, receive, send)

    assert declared.status_code == sent[0]["status"] == 413
    assert error_of(declared)["code"] == "body_too_large"
    # The limit and one part, and after the answer what is dropped of the rest.
    assert sum(received) == 1100 + 500
    assert dict(sent[0]["headers"])[b"connection"] == b"close"


async def test_a_body_that_does_not_arrive_is_408() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async with serving(body_timeout=0.01) as (app, _):
        await app(ManualRequest(app, PATH, CHAT).scope, sleep_forever, send)  # type: ignore[arg-type]

    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["error"]["code"] == "body_timeout"


async def test_unknown_paths_are_404_and_wrong_methods_405() -> None:
    async with serving() as (_, client):
        missing = await client.get("/v2/chat")
        wrong = await client.get(PATH)

    assert missing.status_code == 404
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert error_of(missing)["message"] == "GET /v2/chat: Not Found"
    assert error_of(wrong)["message"] == f"GET {PATH}: Method Not Allowed; use POST"


async def test_a_similar_path_is_suggested_for_an_unknown_one() -> None:
    """A `base_url` without `/v1`, or with the path of an endpoint, is the usual mistake."""
    async with serving() as (_, client):
        for given in (
            *("/chat/completions", "/v1/v1/chat/completions", "/v1/chat/completion"),
            "/v1/chat/completions/chat/completions",
        ):
            missing = await client.post(given, json=CHAT)
            expected = f"POST {given}: Not Found; did you mean {PATH}?"
            assert error_of(missing)["message"] == expected

        long = await client.get("/v1/chat/completions" + 1000 * "/x")
        assert "did you mean" not in error_of(long)["message"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/messages", "; Anthropic's API is not served"),
        ("/v1/messages/count_tokens", "; Anthropic's API is not served"),
        ("/api/chat", "; Ollama's API is not served"),
        ("/api/version", "; Ollama's API is not served"),
        ("/v1/files", "; `aiomlc batch` answers files"),
        ("/v1", "; clients have /v1 as their base_url"),
        ("/docs", "; /openapi.json describes the API"),
        *((path, "") for path in ("/v1/embed", "/v1/moderations", "/v1/conversations", "/props")),
    ],
)
async def test_a_path_of_another_api_is_not_answered_with_an_unlike_one(
    path: str, hint: str
) -> None:
    async with serving() as (_, client):
        missing = await client.post(path, json=CHAT)

    message = error_of(missing)["message"]
    assert message.startswith(f"POST {path}: Not Found{hint}")
    assert "did you mean" not in message


async def test_a_time_limit_of_the_request_is_408() -> None:
    async with serving(FakeCore(["Hi!"], timeouts={1: "timeout"})) as (_, client):
        response = await client.post(PATH, json={**CHAT, "timeout": 9})

    assert response.status_code == 408
    assert response.headers["x-should-retry"] == "false"
    assert error_of(response)["code"] == "timeout"


async def test_a_full_engine_is_429_with_retry_after() -> None:
    async with serving(FakeCore(max_live=0)) as (_, client):
        for stream in (False, True):
            response = await client.post(PATH, json={**CHAT, "stream": stream})
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) > 0
            assert error_of(response)["type"] == "rate_limit_error"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_chunk_is_a_status(stream: bool) -> None:
    async with serving(FakeCore(["Hi!"], failures={1: "no more"})) as (_, client):
        response = await client.post(PATH, json={**CHAT, "stream": stream})

    assert response.status_code == 500
    assert "no more" in error_of(response)["message"]


async def test_a_failure_after_the_first_chunk_is_an_event() -> None:
    async with serving(FakeCore(["Hi!"], timeouts={1: "timeout"})) as (_, client):
        response = await client.post(PATH, json={**CHAT, "stream": True, "timeout": 9})
        named = await client.post(
            "/v1/responses", json={"input": "a", "stream": True, "request_id": "b"}
        )

    events = events_of(response.text)
    assert response.status_code == named.status_code == 200
    assert events[-1] == "[DONE]"
    assert events[-2]["error"]["code"] == "timeout"


async def test_a_failure_of_a_streamed_response_is_a_named_event() -> None:
    async with serving(FakeCore(["Hi!"], failures={1: "no more"})) as (_, client):
        response = await client.post("/v1/responses", json={"input": "a", "stream": True})

    assert "event: error\n" in response.text
    assert events_of(response.text)[-1]["code"] == "request_failed"


async def test_a_second_request_with_a_running_id_is_409() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with serving(core) as (app, client), create_task_group() as tasks:
        core.allow(1)
        fields = {**CHAT, "stream": True, "request_id": "a"}
        first = ManualRequest(app, PATH, fields)
        tasks.start_soon(first.run)
        await first.has_body.wait()
        second = await client.post(PATH, json=fields)
        core.allow(1000)

    assert second.status_code == 409
    assert error_of(second)["code"] == "duplicate_request_id"
    assert first.is_complete


async def test_a_closed_engine_is_503() -> None:
    engine = AsyncMLCEngine(loader=fake_loader(FakeCore()))
    async with engine:
        app = create_app(engine)

    async with http_client(app) as client:
        response = await client.post(PATH, json=CHAT)

    assert response.status_code == 503
    assert error_of(response)["type"] == "server_error"


async def test_a_model_that_cannot_be_loaded_is_500_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def load(*_: object, **__: object) -> LoadedModel:
        raise ModelLoadError("/secret/path is broken")

    async with http_client(create_app(AsyncMLCEngine(loader=load))) as client:
        response = await client.post(PATH, json=CHAT)

    assert response.status_code == 500
    assert "/secret" not in response.text
    assert "/secret/path is broken" in caplog.text


async def test_an_unexpected_failure_is_500_without_details(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.ERROR, "aiomlc")
    monkeypatch.setattr("aiomlc.serve.endpoints.status.metrics_text", lambda _: 1 // 0)
    async with serving() as (_, client):
        response = await client.get("/metrics")

    assert error_of(response)["type"] == "server_error"
    assert response.headers["x-request-id"] in caplog.text
    assert response.status_code == 500
    assert "division" not in response.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("name", ["prompt_cache_key", "service_tier", "prediction"])
async def test_hints_to_a_hosted_service_are_ignored(name: str) -> None:
    async with serving() as (_, client):
        assert (await client.post(PATH, json={**CHAT, name: "a"})).status_code == 200


async def test_unsupported_fields_are_ignored_if_the_operator_wishes() -> None:
    async with serving(ignore_unsupported_fields=True) as (_, client):
        response = await client.post(PATH, json={**CHAT, "cache_prompt": True})

    assert response.status_code == 200


async def test_prompts_beyond_the_limit_are_400() -> None:
    long = {"messages": [{"role": "user", "content": "a" * 200}]}
    async with serving(max_prompt_length=100) as (_, client):
        chat = await client.post(PATH, json=long)
        ids = await client.post("/v1/completions", json={"prompt": [1] * 101})
        parts = {"input": "a" * 60, "instructions": "b" * 60}
        together = await client.post("/v1/responses", json=parts)
        short = await client.post(PATH, json=CHAT)

    assert chat.status_code == ids.status_code == together.status_code == 400
    assert error_of(together)["message"].startswith("input, instructions: must have at most 100")
    assert error_of(chat)["code"] == error_of(ids)["code"] == "context_length_exceeded"
    assert short.status_code == 200


async def test_choices_of_all_prompts_count() -> None:
    async with serving(max_choices=4) as (_, client):
        rejected = await client.post("/v1/completions", json={"prompt": ["a", "b"], "n": 3})
        accepted = await client.post("/v1/completions", json={"prompt": ["a", "b"], "n": 2})
        one_prompt = await client.post("/v1/completions", json={"prompt": [1, 2, 3], "n": 4})
        without_n = await client.post("/v1/completions", json={"prompt": ["a"] * 5})

    assert rejected.status_code == without_n.status_code == 400
    assert error_of(rejected)["param"] == "n"
    assert accepted.status_code == one_prompt.status_code == 200


async def test_inputs_of_embeddings_beyond_the_limit_are_400() -> None:
    engine = AsyncMLCEngine(loader=fake_loader(FakeEncoder()))
    app = create_app({"fake": engine}, ServerOptions(max_inputs=2, load="demand"))
    async with engine, http_client(app) as client:
        rejected = await client.post("/v1/embeddings", json={"input": ["a", "b", "c"]})
        texts = await client.post("/v1/embeddings", json={"input": ["a", "b"]})
        one_of_ids = await client.post("/v1/embeddings", json={"input": [1, 2, 3]})

    assert rejected.status_code == 400
    assert error_of(rejected)["message"] == "input: must have at most 2 items, got 3"
    assert [item["index"] for item in texts.json()["data"]] == [0, 1]
    assert one_of_ids.json()["object"] == "list"


_JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\:{[]},é'),
    lambda values: st.lists(values) | st.dictionaries(st.text(alphabet='"\\:{['), values),
    max_leaves=20,
)


def _count(value: object) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(_count, value.values()))

    return 1 + sum(map(_count, value)) if isinstance(value, list) else 0


@settings(max_examples=50)
@given(_JSON_VALUES, st.booleans())
def test_names_objects_and_lists_are_counted_as_after_parsing(
    value: object, is_ascii: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_body, "MAX_NODES", -1)  # So that the exact way is taken.
        assert request_body._num_nodes(json.dumps(value, ensure_ascii=is_ascii).encode()) == _count(
            value
        )


@pytest.mark.parametrize("kind", ["names", "lists", "objects"])
async def test_a_body_with_too_many_names_is_refused_before_it_is_parsed(kind: str) -> None:
    many = {
        "names": {f"k{index}": 1 for index in range(150_001)},
        "lists": [[]] * 150_001,
        "objects": [{}] * 150_001,
    }
    async with serving() as (_, client):
        answer = await client.post(PATH, json={**CHAT, "x": many[kind]})
        harmless = await client.post(PATH, json={**CHAT, "x": "{[:" * 100_000})

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "too_many_fields"
    assert harmless.json()["error"]["message"].startswith("x: unknown field")


async def test_memory_is_returned_after_large_bodies_only(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(memory, "_malloc_trim", lambda: calls.append)
    monkeypatch.setattr(memory, "_SECONDS", 0.01)
    async with serving() as (_, client):
        await client.post(PATH, json={**CHAT, "x": "a"})
        await sleep(0.05)
        assert calls == []

        await client.post(PATH, json={**CHAT, "x": "a" * 2**20})
        with fail_after(10):
            while not calls:
                await checkpoint()

    assert calls == [0]
