"""`--ignore-unsupported-fields`: unknown fields at every depth, and values that only tune."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, UnsupportedFieldError
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.completion import parse_completion_request
from aiomlc.api.protocol.ignored import IgnoredFields
from aiomlc.api.protocol.request import GenerationRequest
from aiomlc.serve import ServerOptions, create_app
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader
from tests.unit.serve.asgi import CHAT, http_client, serving

HINT = "; the operator can let the server ignore it by --ignore-unsupported-fields"
TOOL: dict[str, Any] = {"name": "f", "parameters": {"type": "object"}}
CALL: dict[str, Any] = {
    "id": "1",
    "type": "function",
    "function": {"name": "f", "arguments": "{}"},
}
# Requests with an object of every kind that an API has.
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "system", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": "b", "tool_calls": [CALL]},
            {"role": "tool", "content": "c", "tool_call_id": "1"},
        ],
        "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "f"}}],
            },
        },
        "stream": True,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "text"},
    },
    "/v1/completions": {
        "prompt": "a",
        "stream": True,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "text"},
    },
    "/v1/responses": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "a"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}]},
        ],
        "tools": [{"type": "function", **TOOL}],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}],
        },
        "text": {"format": {"type": "text"}},
        "reasoning": {"summary": "auto"},
    },
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [65]},
    "/v1/embeddings": {"input": "a"},
}
# Objects whose fields are the caller's own.
FREE = ("parameters", "schema")
# Fields that are known, with values that wish for what does not exist, but only tune.
WISHES: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        {"store": True},
        {"verbosity": "low"},
        {"reasoning_effort": "low"},
        {"chat_template_kwargs": {"no_such_variable": 1}},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"stream": True, "stream_options": {"include_obfuscation": True}},
    ],
    "/v1/responses": [
        {"store": True},
        {"truncation": "auto"},
        {"reasoning": {"effort": "low"}},
        {"text": {"verbosity": "low"}},
        {"chat_template_kwargs": {"no_such_variable": 1}},
    ],
    "/v1/completions": [{"store": True}],
    "/v1/embeddings": [{"store": True}],
}


def objects_of(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ANN401
    """Yield the objects in a JSON value, and their paths without indices."""
    if isinstance(value, dict):
        yield path, value
        for name, inner in value.items():
            if name not in FREE:
                yield from objects_of(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from objects_of(inner, f"{path}[]")


def with_unknown_field(path: str, number: int) -> tuple[str, dict[str, Any]]:
    """Return a request with an unknown field in one of its objects, and the field's name."""
    request = copy.deepcopy(REQUESTS[path])
    place, chosen = list(objects_of(request))[number]
    chosen["unknown"] = {"a": 1}
    return f"{place}.unknown" if place else "unknown", request


CASES = [
    (path, number)
    for path, request in REQUESTS.items()
    for number, _ in enumerate(objects_of(request))
]


def serving_both(**options: Any) -> Any:  # noqa: ANN401 - as `serving`.
    """Serve a decoder and an encoder."""
    engines = {
        "decoder": AsyncMLCEngine(loader=fake_loader(FakeCore(["{}"]))),
        "encoder": AsyncMLCEngine(loader=fake_loader(FakeEncoder())),
    }
    return engines, create_app(engines, ServerOptions(embedding_model="encoder", **options))


async def post(path: str, fields: dict[str, Any], **options: Any) -> tuple[int, str, Any]:  # noqa: ANN401
    engines, app = serving_both(**options)
    model = "encoder" if path == "/v1/embeddings" else "decoder"
    async with engines["decoder"], engines["encoder"], http_client(app) as client:
        answer = await client.post(path, json={"model": model, **fields})

    is_json = answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.text, answer.json() if is_json else None


@pytest.mark.parametrize(("path", "number"), CASES)
async def test_unknown_fields_are_ignored_at_every_depth_if_the_operator_wishes(
    path: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    name, fields = with_unknown_field(path, number)
    rejected, text, body = await post(path, fields)
    with caplog.at_level(logging.WARNING, "aiomlc"):
        accepted, answer, _ = await post(path, fields, ignore_unsupported_fields=True)

    assert (rejected, accepted) == (400, 200), (text, answer)
    assert '"error":{' not in answer
    assert body["error"]["message"].endswith(HINT)
    assert "ignored" in caplog.text
    assert repr(name) in caplog.text


@pytest.mark.parametrize(
    ("path", "wish"), [(path, wish) for path, wishes in WISHES.items() for wish in wishes]
)
async def test_values_that_only_tune_are_ignored_if_the_operator_wishes(
    path: str, wish: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    simple = {
        "/v1/chat/completions": CHAT,
        "/v1/responses": {"input": "a"},
        "/v1/completions": {"prompt": "a"},
        "/v1/embeddings": {"input": "a"},
    }
    fields = {**simple[path], **wish}
    rejected, _, body = await post(path, fields)
    with caplog.at_level(logging.WARNING, "aiomlc"):
        accepted, answer, _ = await post(path, fields, ignore_unsupported_fields=True)

    assert (rejected, accepted) == (400, 200), answer
    assert body["error"]["message"].endswith(HINT)
    assert "ignored" in caplog.text


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "json_object", "schema": {}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
        {"type": "grammar", "syntax": "regex", "definition": "a"},
        {
            "type": "structural_tag",
            "structures": [{"begin": "a", "schema": {}, "end": "b"}],
            "triggers": ["a"],
        },
    ],
)
@pytest.mark.parametrize("parse", [parse_chat_request, parse_completion_request])
def test_unknown_fields_of_response_formats_are_ignored(
    parse: Callable[..., GenerationRequest],
    response_format: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    prompt = {"prompt": "a"} if parse is parse_completion_request else CHAT
    plain = parse({**prompt, "response_format": response_format})
    for number, (path, _) in enumerate(objects_of(response_format, "response_format")):
        changed = copy.deepcopy(response_format)
        list(objects_of(changed))[number][1]["unknown"] = 1
        with pytest.raises(UnsupportedFieldError):
            parse({**prompt, "response_format": changed})

        with caplog.at_level(logging.WARNING, "aiomlc"):
            request = parse({**prompt, "response_format": changed}, IgnoredFields())

        assert request.model_dump() == plain.model_dump()
        assert repr(f"{path}.unknown") in caplog.text


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -1},
        {"messages": []},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "a"}]}]},
        {"response_format": {"type": "xml"}},
        {"unknown": 1, "n": 0},
    ],
)
async def test_what_cannot_be_answered_is_rejected_all_the_same(fields: dict[str, Any]) -> None:
    async with serving(ignore_unsupported_fields=True) as (_, client):
        answer = await client.post("/v1/chat/completions", json={**CHAT, **fields})

    assert answer.status_code == 400
    assert HINT not in answer.text


def test_a_name_is_logged_once_and_their_number_is_limited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ignored = IgnoredFields()
    with caplog.at_level(logging.WARNING, "aiomlc"):
        for index in range(1000):
            ignored.add(f"messages[{index}].name")
        for index in range(1000):
            ignored.add(f"name\n{'x' * 1000}"[:5] + str(index) + "x" * 1000)

    assert caplog.text.count("'messages[].name'") == 1
    assert len(caplog.records) == 100
    assert max(len(record.getMessage()) for record in caplog.records) < 300
    assert all("\n" not in record.getMessage() for record in caplog.records)
