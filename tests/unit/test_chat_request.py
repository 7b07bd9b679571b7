"""What a request may say, and how it reads when it says something else."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc.api.protocol.chat import ChatCompletionMessage
from aiomlc.api.protocol.chat_request import ChatCompletionRequest, parse_chat_request
from aiomlc.api.protocol.messages import AssistantMessage
from aiomlc.errors import BadRequestError

USER = {"role": "user", "content": "Hello"}


def parse(**fields: object) -> ChatCompletionRequest:
    return parse_chat_request({"messages": [USER], **fields})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("audio", {"voice": "x"}),
        ("best_of", 2),
        ("extra_body", {"x": 1}),
        ("frequency_penalty", 0.5),
        ("function_call", "auto"),
        ("functions", [{"name": "f"}]),
        ("logit_bias", {"1": 1}),
        ("logprobs", True),
        ("metadata", {"a": "b"}),
        ("modalities", ["text", "audio"]),
        ("moderation", {}),
        ("parallel_tool_calls", True),
        ("prediction", {"type": "content"}),
        ("presence_penalty", 1),
        ("prompt_cache_key", "k"),
        ("prompt_cache_retention", "24h"),
        ("reasoning_effort", "low"),
        ("repetition_penalty", 1.1),
        ("response_format", {"type": "json_object"}),
        ("safety_identifier", "s"),
        ("service_tier", "flex"),
        ("stop_token_ids", [1]),
        ("store", True),
        ("tool_choice", "required"),
        ("tools", [{"type": "function"}]),
        ("top_logprobs", 1),
        ("user", "me"),
        ("verbosity", "low"),
        ("web_search_options", {}),
    ],
)
def test_a_field_that_is_not_supported_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(BadRequestError, match=f"{name} is not supported yet") as caught:
        parse(**{name: value})

    assert caught.value.param == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frequency_penalty", 0.0),
        ("logit_bias", {}),
        ("logprobs", False),
        ("presence_penalty", None),
        ("response_format", {"type": "text"}),
        ("tool_choice", "none"),
        ("tools", []),
        ("user", None),
    ],
)
def test_a_value_that_asks_for_nothing_is_accepted(name: str, value: object) -> None:
    assert parse(**{name: value}) == parse()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "Hello"}, "messages"),
        ({"messages": ["Hello"]}, "messages[0]"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0]"),
        ({"messages": [USER, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{**USER, "mood": "good"}]}, "messages[0].mood"),
        ({"messages": [{"role": "assistant"}]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
        ),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
        ({"temprature": 1}, "temprature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens"),
        ({"seed": "x"}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ""}, "stop[0]"),
        ({"stop": ["a", 1]}, "stop[1]"),
        ({"stop": 1}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
        ({"request_id": ""}, "request_id"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(**fields)

    assert caught.value.param == param
    assert param in str(caught.value)


def test_an_unknown_field_is_said_to_be_unknown() -> None:
    with pytest.raises(BadRequestError, match="temprature: is not a known field"):
        parse(temprature=1)


def test_a_bad_request_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        parse(max_tokens=0)


def test_every_role_is_accepted() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    request = parse(
        messages=[
            {"role": "system", "content": "s"},
            {"role": "developer", "content": "d"},
            {"role": "user", "content": "u", "name": "Ada"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
            {"role": "assistant", "content": "a"},
        ]
    )

    assert [message.role for message in request.messages] == [
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    said = request.messages[3]
    assert isinstance(said, AssistantMessage)
    assert said.tool_calls is not None
    assert said.tool_calls[0].function.arguments == "{}"


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]

    assert parse(messages=[{"role": "user", "content": parts}]) == parse()


def test_a_message_may_be_a_model() -> None:
    request = parse(messages=[USER, ChatCompletionMessage(content="Hi")])

    assert request.messages[1].content == "Hi"


def test_one_stop_string_is_a_list_of_one() -> None:
    assert parse(stop="end").stop == ("end",)
    assert parse(stop=["a", "b"]).stop == ("a", "b")
    assert parse(stop=None).stop == ()


def test_both_names_of_the_token_limit_mean_the_same() -> None:
    assert parse(max_tokens=3).token_limit == 3
    assert parse(max_completion_tokens=3).token_limit == 3
    assert parse(max_tokens=3, max_completion_tokens=3).token_limit == 3
    assert parse().token_limit is None
