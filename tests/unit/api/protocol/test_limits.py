"""Requests with too many items are refused by type, and large ones are validated in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.completion import parse_completion_request
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.protocol.response_request import parse_response_request
from aiomlc.errors import BadRequestError, PromptTooLongError

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {f"k{i}": {"type": "integer"} for i in range(30_000)}}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TAG = {"begin": "<a>", "schema": {}, "end": "</a>"}

#: Fields of chats with too many items, and the field that the error names.
TOO_MANY: dict[str, tuple[dict[str, Any], str]] = {
    "messages": ({"messages": [USER] * 10_001}, "messages"),
    "content parts": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 10_001}]},
        "messages",
    ),
    "tool calls": (
        {"messages": [USER, {"role": "assistant", "tool_calls": [CALL] * 10_001}]},
        "messages",
    ),
    "stop strings": ({"stop": ["a"] * 257}, "stop"),
    "a stop string": ({"stop": "a" * 4097}, "stop"),
    "one of the stop strings": ({"stop": ["a", "a" * 4097]}, "stop[1]"),
    "characters of all stop strings": ({"stop": ["a" * 4096] * 17}, "stop"),
    "stop tokens": ({"stop_token_ids": [1] * 4097}, "stop_token_ids"),
    "biases": ({"logit_bias": dict.fromkeys(range(65_537), 1)}, "logit_bias"),
    "biases of all choices": (
        {"logit_bias": dict.fromkeys(range(2000), 1), "n": 100},
        "logit_bias",
    ),
    "processors": ({"logits_processors": [print] * 65}, "logits_processors"),
    "tools": ({"tools": [TOOL] * 1025}, "tools"),
    "schemas of tools": (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]},
        "tools",
    ),
    "a schema": (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": SCHEMA},
            }
        },
        "response_format",
    ),
    "structures": (
        {
            "response_format": {
                "type": "structural_tag",
                "structures": [TAG] * 1025,
                "triggers": ["<a"],
            }
        },
        "response_format.structures",
    ),
    "metadata": ({"metadata": {str(i): "a" for i in range(257)}}, "metadata"),
    "variables": (
        {"chat_template_kwargs": {str(i): "a" for i in range(257)}},
        "chat_template_kwargs",
    ),
    "values of variables": ({"chat_template_kwargs": {"a": [1] * 50_001}}, "chat_template_kwargs"),
}


@pytest.mark.parametrize("name", TOO_MANY)
async def test_a_chat_with_too_many_items_is_refused(name: str) -> None:
    fields, param = TOO_MANY[name]

    for each in (fields, {"extra_body": fields}):
        with pytest.raises(BadRequestError, match="must have at most") as caught:
            await parse_off_loop(parse_chat_request, {"messages": [USER], **each})

        assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ["a"] * 1025}, "prompt"),
        ({"prompt": ["a"] * 9, "n": 128}, "n"),
        ({"prompt": ["a"] * 9, "n": 1, "best_of": 128}, "best_of"),
    ],
)
async def test_a_completion_with_too_many_prompts_is_refused(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError, match="must have at most") as caught:
        await parse_off_loop(parse_completion_request, fields)

    assert caught.value.param == param


@pytest.mark.parametrize("prompt", [[1] * 1_000_001, [[1], [1] * 1_000_001]])
async def test_a_prompt_with_too_many_token_ids_is_refused(prompt: object) -> None:
    with pytest.raises(PromptTooLongError, match="1000001 tokens") as caught:
        await parse_off_loop(parse_completion_request, {"prompt": prompt})

    assert caught.value.prompt_tokens == 1_000_001


async def test_a_response_with_too_many_items_is_refused() -> None:
    with pytest.raises(BadRequestError, match="must have at most 10000 items") as caught:
        await parse_off_loop(parse_response_request, {"input": [USER] * 10_001})

    assert caught.value.param == "input"


@pytest.mark.parametrize(
    ("fields", "is_small"),
    [
        ({"messages": [USER] * 50}, True),
        ({"messages": [USER] * 500}, False),
        ({"messages": [{"role": "user", "content": "a" * 100_001}]}, False),
        ({"messages": [USER], "stop_token_ids": list(range(400))}, False),
    ],
)
async def test_a_large_request_is_validated_in_another_thread(
    fields: dict[str, Any], is_small: bool
) -> None:
    threads = []

    def parse(fields: Mapping[str, Any]) -> object:
        threads.append(threading.current_thread())
        return parse_chat_request(fields)

    await parse_off_loop(parse, fields)

    assert (threads == [threading.current_thread()]) == is_small


async def test_iterators_are_read_in_the_thread_of_the_event_loop() -> None:
    threads = set()

    def messages() -> Iterator[dict[str, str]]:
        for _ in range(500):
            threads.add(threading.current_thread())
            yield USER

    request = await parse_off_loop(parse_chat_request, {"messages": messages()})

    assert len(request.messages) == 500
    assert threads == {threading.current_thread()}


async def test_an_iterator_that_raises_is_a_bad_request() -> None:
    with pytest.raises(BadRequestError, match="messages: cannot be read: it raises ZeroDivision"):
        await parse_off_loop(parse_chat_request, {"messages": (1 / 0 for _ in range(3))})
