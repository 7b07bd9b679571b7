"""The fields, names and nesting of requests are limited before they are validated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from aiomlc.api.protocol.chat_request import ChatCompletionRequest, parse_chat_request
from aiomlc.api.protocol.completion import CompletionRequest, parse_completion_request
from aiomlc.api.protocol.embedding import parse_embedding_request
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.protocol.response_request import ResponseRequest, parse_response_request
from aiomlc.api.protocol.token import parse_token_request
from aiomlc.errors import BadRequestError

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [CALL]}],
    "tools": [TOOL],
    "response_format": SCHEMA,
    "stream": True,
    "stream_options": {"include_usage": True},
}
RESPONSE: dict[str, Any] = {
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
    "reasoning": {"effort": "low"},
}
REQUESTS: dict[str, tuple[Callable[[Mapping[str, Any]], object], dict[str, Any]]] = {
    "chat": (parse_chat_request, CHAT),
    "completion": (parse_completion_request, {"prompt": "Hi"}),
    "embeddings": (parse_embedding_request, {"input": "Hi"}),
    "response": (parse_response_request, RESPONSE),
    "tokens": (parse_token_request, {"prompt": "Hi"}),
}
#: Places of objects with fixed names: the request, and the keys and indices that lead there.
OBJECTS = [
    ("chat", ("messages", 0)),
    ("chat", ("messages", 1, "tool_calls", 0)),
    ("chat", ("messages", 1, "tool_calls", 0, "function")),
    ("chat", ("tools", 0)),
    ("chat", ("tools", 0, "function")),
    ("chat", ("response_format",)),
    ("chat", ("response_format", "json_schema")),
    ("chat", ("stream_options",)),
    ("response", ("input", 0)),
    ("response", ("input", 0, "content", 0)),
    ("response", ("tools", 0)),
    ("response", ("text",)),
    ("response", ("text", "format")),
    ("response", ("reasoning",)),
]
#: Objects with names that a client chooses.
FREE = [
    ("chat", ("tools", 0, "function", "parameters")),
    ("chat", ("response_format", "json_schema", "schema")),
    ("response", ("text", "format", "schema")),
]


def names(number: int) -> dict[str, int]:
    return {f"k{index}": index for index in range(number)}


def merged(value: Any, path: tuple[str | int, ...], extra: Mapping[str, object]) -> Any:  # noqa: ANN401
    """Return a copy of a value with further names in the object at a path."""
    if not path:
        return {**value, **extra}

    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = merged(value[path[0]], path[1:], extra)
    return copy


def error_of(request: str, fields: Mapping[str, Any]) -> str:
    with pytest.raises(BadRequestError) as caught:
        REQUESTS[request][0](fields)

    assert len(str(caught.value)) < 600
    assert len(caught.value.param or "") < 400
    return str(caught.value)


@pytest.mark.parametrize("request_name", REQUESTS)
async def test_a_request_has_at_most_256_fields(request_name: str) -> None:
    parse, fields = REQUESTS[request_name]
    many = {**fields, **names(257 - len(fields))}

    assert error_of(request_name, many) == "a request must have at most 256 fields, got 257"
    with pytest.raises(BadRequestError, match="at most 256 fields, got 257"):
        await parse_off_loop(parse, many)

    many.popitem()
    assert "k0: unknown field" in error_of(request_name, many)


@pytest.mark.parametrize(("request_name", "path"), OBJECTS)
def test_an_object_with_fixed_names_has_at_most_64(
    request_name: str, path: tuple[str | int, ...]
) -> None:
    fields = REQUESTS[request_name][1]
    size = len(_at(fields, path))

    message = error_of(request_name, merged(fields, path, names(65 - size)))
    assert message == f"{path[0]}: an object must have at most 64 fields, got 65"
    assert "at most" not in error_of(request_name, merged(fields, path, names(64 - size)))


def _at(value: Any, path: tuple[str | int, ...]) -> Any:  # noqa: ANN401
    for step in path:
        value = value[step]

    return value


@pytest.mark.parametrize(("request_name", "path"), FREE)
def test_an_object_of_any_names_may_have_more(
    request_name: str, path: tuple[str | int, ...]
) -> None:
    parse, fields = REQUESTS[request_name]

    properties = {name: {"type": "integer"} for name in names(1000)}
    parse(merged(fields, path, {"properties": properties}))


@pytest.mark.parametrize("field", ["chat_template_kwargs", "messages", "xyz"])
@pytest.mark.parametrize("kind", ["names", "lists", "objects"])
def test_a_request_has_at_most_150_000_names_and_containers(field: str, kind: str) -> None:
    values: dict[str, Any] = {
        "names": [names(50)] * 3000,
        "lists": [[]] * 150_001,
        "objects": [{}] * 150_001,
    }

    message = error_of("tokens", {"prompt": "Hi", field: values[kind]})
    assert message == f"{field}: has more than 150000 names, objects and lists"


def _circular() -> dict[str, Any]:
    one: list[Any] = []
    one.append(one)
    two: list[Any] = []
    two += [two, two]
    objects: dict[str, Any] = {}
    objects |= {"a": objects, "b": objects}
    queue: deque[Any] = deque()
    queue.extend([queue, queue])
    shared: list[Any] = [1]
    for _ in range(90):
        shared = [shared, shared]
    return {"one": one, "two": two, "objects": objects, "queue": queue, "shared": shared}


@pytest.mark.parametrize("name", _circular())
async def test_values_that_contain_themselves_are_refused(name: str) -> None:
    value = _circular()[name]
    for fields in ({"messages": value}, {"chat_template_kwargs": {"a": value}}, {"xyz": value}):
        with pytest.raises(BadRequestError) as caught:
            await parse_off_loop(parse_chat_request, {**CHAT, **fields})

        (field,) = fields
        assert caught.value.param == field
        assert str(caught.value).startswith(
            (f"{field}: is nested deeper than 100", f"{field}: has more", f"{field}: must have")
        )


@pytest.mark.parametrize(("request_name", "path"), [("chat", ()), ("response", ()), *OBJECTS])
def test_a_long_name_is_not_repeated_in_full(
    request_name: str, path: tuple[str | int, ...]
) -> None:
    for name in ("n" * 1_000_000, "\ud800" + "n" * 100_000):
        assert error_of(request_name, merged(REQUESTS[request_name][1], path, {name: 1}))


#: Lists and objects with many invalid items.
INVALID: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    "messages": (ChatCompletionRequest, {"messages": [{"role": "user", "x": 1}] * 5000}),
    "roles": (ChatCompletionRequest, {"messages": [{"role": "x"}] * 5000}),
    "calls": (
        ChatCompletionRequest,
        {"messages": [{"role": "assistant", "tool_calls": [{"x": 1}] * 5000}]},
    ),
    "tools": (ChatCompletionRequest, {**CHAT, "tools": [{"x": 1}] * 1000}),
    "biases": (ChatCompletionRequest, {**CHAT, "logit_bias": dict.fromkeys(names(5000), "x")}),
    "stop": (ChatCompletionRequest, {**CHAT, "stop": [1] * 5000}),
    "stop tokens": (CompletionRequest, {"prompt": "a", "stop_token_ids": ["x"] * 4000}),
    "items": (ResponseRequest, {"input": [{"type": "message", "x": 1}] * 5000}),
    "functions": (ResponseRequest, {"input": "a", "tools": [{"x": 1}] * 1000}),
}


@pytest.mark.parametrize("name", INVALID)
def test_few_of_many_errors_are_described(name: str) -> None:
    kind, fields = INVALID[name]
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(fields)

    assert caught.value.error_count() <= 2 * 256
