"""Validation of chat requests: accepted fields, and errors that name invalid ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from aiomlc.api.protocol.chat import ChatCompletionMessage
from aiomlc.api.protocol.chat_request import ChatCompletionRequest, parse_chat_request
from aiomlc.api.protocol.messages import AssistantMessage
from aiomlc.errors import BadRequestError

USER = {"role": "user", "content": "Hello"}
TOOL_FORM = '{"type": "function", "function": {"name": ..., "parameters": {...}}}'


class Answer(BaseModel):
    """A class, which is not a `response_format`."""


def parse(**fields: object) -> ChatCompletionRequest:
    return parse_chat_request({"messages": [USER], **fields})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("audio", {"voice": "x"}),
        ("best_of", 2),
        ("function_call", "auto"),
        ("functions", [{"name": "f"}]),
        ("modalities", ["text", "audio"]),
        ("moderation", {}),
        ("prediction", {"type": "content"}),
        ("prompt_cache_key", "k"),
        ("prompt_cache_retention", "24h"),
        ("service_tier", "flex"),
        ("store", True),
        ("verbosity", "low"),
        ("web_search_options", {}),
    ],
)
def test_unsupported_fields_are_rejected_by_name(name: str, value: object) -> None:
    with pytest.raises(BadRequestError, match=f"{name} is not supported yet") as caught:
        parse(**{name: value})

    assert caught.value.param == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", []),
        ("tools", None),
        ("user", None),
    ],
)
def test_values_without_effect_are_accepted(name: str, value: object) -> None:
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
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"frequency_penalty": "1"}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"7": 101}}, "logit_bias.7"),
        ({"logit_bias": {7: True}}, "logit_bias[7]"),
        ({"logit_bias": {"-1": 1}}, "logit_bias.-1"),
        ({"logit_bias": {"dog": 1}}, "logit_bias.dog"),
        ({"logprobs": 5}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 1}, "top_logprobs"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 4, "max_tokens": 3}, "min_tokens"),
        ({"ignore_eos": 1}, "ignore_eos"),
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
        ({"tools": "f"}, "tools"),
        ({"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]},
            "tools[0].function.strict",
        ),
        ({"tool_choice": 1}, "tool_choice"),
        ({"extra_body": {"x": 1}}, "x"),
        ({"extra_body": 1}, "extra_body"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"stop_token_ids": ["x"]}, "stop_token_ids[0]"),
        ({"user": 1}, "user"),
        ({"reasoning_effort": "very"}, "reasoning_effort"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"continue_final_message": "yes"}, "continue_final_message"),
    ],
)
def test_an_invalid_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(**fields)

    assert caught.value.param == param
    assert param in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"messages": None},
            'messages: must be a list of messages: {"role": "user", "content": ...}, got None',
        ),
        ({"messages": [1]}, "messages[0]: must be an object, got 1"),
        ({"messages": []}, "messages: cannot be empty"),
        ({"stop": 5}, "stop: must be a string or a list of strings, got 5"),
        ({"tools": ["f"]}, "tools[0]: must be an object, got 'f'; a tool is " + TOOL_FORM),
        ({"stream_options": 1}, "stream_options: must be an object, got 1"),
        ({"logit_bias": [1]}, "logit_bias: must be an object, got list"),
        ({"temperature": "hot"}, "temperature: must be a number, got 'hot'"),
        ({"max_tokens": 1.5}, "max_tokens: must be an integer, got 1.5"),
        ({"stream": "yes"}, "stream: must be a boolean, got 'yes'"),
        ({"user": 1}, "user: must be a string, got 1"),
        ({"temperature": float("nan")}, "temperature: must be a finite number, got nan"),
        ({"user": ["x" * 50]}, "user: must be a string, got list"),
        ({"stream": "x" * 50}, "stream: must be a boolean, got str"),
        (
            {"messages": [{"role": "user", "content": b"Hi"}]},
            "messages[0].content: must be a string or a list of text parts, got bytes",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name: should match pattern '^[a-zA-Z0-9_.-]{1,64}$', got 'a b'",
        ),
        (
            {"response_format": int},
            "response_format: must be an object; pass the class int to chat.completions.parse",
        ),
        ({"tools": [parse]}, "tools[0]: must be an object, got function; a tool is " + TOOL_FORM),
        ({"tools": [{"name": "f"}]}, "tools[0].type: is missing; a tool is " + TOOL_FORM),
        (
            {"tools": [{"type": "function", "name": "f"}]},
            "tools[0].function: is missing; a tool is " + TOOL_FORM,
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}] * 2},
            "tools[1].function.name: 'f' is already the name of a tool",
        ),
        ({"functions": [{"name": "f"}]}, "functions is not supported yet; pass tools"),
        ({"top_k": -2}, "top_k: should be non-negative, got -2"),
        ({"messages": [{"role": "user"}]}, "messages[0].content: is missing"),
        ({"messages": [{"content": "Hi"}]}, "messages[0]: role is missing"),
        (
            {"response_format": 1},
            'response_format: must be an object such as {"type": "json_object"}, got 1',
        ),
        ({"response_format": {}}, "response_format: type is missing"),
        (
            {"response_format": Answer},
            "response_format: must be an object; pass the class Answer to chat.completions.parse",
        ),
        (
            {"logit_bias": {"hello": 5}},
            "logit_bias.hello: must be a token id; see engine.tokenizer.encode",
        ),
        ({"tempertaure": 0}, "tempertaure: unknown field; did you mean temperature?"),
        ({"max_token": 3}, "max_token: unknown field; did you mean max_tokens?"),
        ({"num_predict": 3}, "num_predict: unknown field; did you mean max_tokens?"),
        (
            {"system": "Be brief."},
            'system: unknown field; put {"role": "system", "content": ...} first in messages',
        ),
        (
            {"n_ctx": 64},
            (
                "n_ctx: unknown field; it is a setting of engines: "
                "EngineConfig(max_single_sequence_length=...)"
            ),
        ),
        ({"xyz": 3}, "xyz: unknown field"),
        ({"tool_choice": 1}, "tool_choice: should be 'none', 'auto' or 'required', got 1"),
    ],
)
def test_type_errors_name_json_types(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(**fields)

    assert str(caught.value) == message


def test_integers_may_be_numpys() -> None:
    fields = {"max_tokens": 3, "n": 2, "seed": 5, "top_k": 4, "stop_token_ids": (7,)}
    values: dict[str, Any] = {name: np.asarray(value)[()] for name, value in fields.items()}
    values["stop_token_ids"] = list(np.array([7]))

    request = parse(**values)

    assert {name: getattr(request, name) for name in fields} == fields
    assert {type(getattr(request, name)) for name in fields} == {int, tuple}


def test_an_unknown_field_is_rejected() -> None:
    with pytest.raises(BadRequestError, match="temprature: unknown field"):
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
    message = request.messages[3]
    assert isinstance(message, AssistantMessage)
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == "{}"


def test_a_message_as_openai_client_returns_it_is_accepted() -> None:
    function = {"name": "f", "arguments": "{}", "parsed_arguments": {}}
    call = {"id": "c1", "type": "function", "index": 0, "function": function}
    answer = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [call],
        "parsed": None,
    }

    request = parse(messages=[{"role": "user", "content": "q"}, answer, tool_result("c1")])

    message = request.messages[1]
    assert isinstance(message, AssistantMessage)
    assert message.tool_calls is not None
    assert message.tool_calls[0].to_dict() == {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }


def tool_result(call_id: str) -> dict[str, str]:
    return {"role": "tool", "content": "42", "tool_call_id": call_id}


def test_a_tool_message_names_a_call_of_an_earlier_message() -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for name in "ab"
    ]
    chat = [{"role": "user", "content": "u"}, {"role": "assistant", "tool_calls": calls}]

    assert len(parse(messages=[*chat, tool_result("b"), tool_result("a")]).messages) == 4
    with pytest.raises(
        BadRequestError, match=r"must be the id of a tool call .*, got 'c'"
    ) as caught:
        parse(messages=[*chat, tool_result("a"), tool_result("c")])

    assert caught.value.param == "messages[3].tool_call_id"


def test_a_tool_message_without_calls_before_it_is_accepted() -> None:
    """MLC LLM rejects assistant messages with `tool_calls`, so its chats have none."""
    call = {"role": "assistant", "content": '[f(city="Rome")]'}
    chat = [{"role": "user", "content": "u"}, call, tool_result("any")]

    assert len(parse(messages=chat).messages) == 3


@pytest.mark.parametrize("choice", [None, "auto", "none", "required"])
def test_the_schema_of_a_tool_must_be_valid(choice: str | None) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "text"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    with pytest.raises(BadRequestError) as caught:
        parse(tools=[tool], tool_choice=choice)

    assert caught.value.param == "tools[0].function.parameters"
    assert str(caught.value).startswith(
        "tools[0].function.parameters: properties.city.type must be one of 'array', "
    )


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]

    assert parse(messages=[{"role": "user", "content": parts}]) == parse()


def test_a_message_may_be_a_pydantic_model() -> None:
    request = parse(messages=[USER, ChatCompletionMessage(content="Hi")])

    assert request.messages[1].content == "Hi"


def test_a_single_stop_string_becomes_a_tuple() -> None:
    assert parse(stop="end").stop == ("end",)
    assert parse(stop=["a", "b"]).stop == ("a", "b")
    assert parse(stop=None).stop == ()


def test_max_tokens_and_max_completion_tokens_are_aliases() -> None:
    assert parse(max_tokens=3).max_new_tokens == 3
    assert parse(max_completion_tokens=3).max_new_tokens == 3
    assert parse(max_tokens=3, max_completion_tokens=3).max_new_tokens == 3
    assert parse().max_new_tokens is None


def test_tools_are_offered_unless_the_choice_is_none() -> None:
    tools = [{"type": "function", "function": {"name": "f", "strict": False}}]

    assert len(parse(tools=tools).offered_tools) == 1
    assert len(parse(tools=tools, tool_choice="auto").offered_tools) == 1
    assert parse(tools=tools, tool_choice="none").offered_tools == ()


def test_tools_for_the_template_have_only_the_given_fields() -> None:
    parameters = {"type": "object", "properties": {"a": {"default": None}}}
    function = {"name": "f", "parameters": parameters}

    request = parse(tools=[{"type": "function", "function": {**function, "strict": False}}])

    assert request.tools[0].for_template() == {"type": "function", "function": function}


def test_extra_body_fields_are_merged_into_the_request() -> None:
    assert parse(top_k=1, extra_body={"top_k": 3}).top_k == 3
    assert parse(top_k=-1).top_k == 0  # As of other servers.
    assert parse(extra_body=None) == parse()


def test_user_labels_are_accepted() -> None:
    request = parse(user="me", safety_identifier="s", metadata={"a": "b"})

    assert (request.user, request.safety_identifier, request.metadata) == ("me", "s", {"a": "b"})


def test_logit_bias_keys_may_be_integers_or_strings() -> None:
    assert parse(logit_bias={"7": 1, 8: -2.5}).logit_bias == {7: 1.0, 8: -2.5}


def test_huge_integers_are_abbreviated_in_messages() -> None:
    with pytest.raises(BadRequestError, match=r"metadata\.a number of \d+ bits: "):
        parse(metadata={2**500: "\ud800"})


def test_message_fields_that_are_none_are_ignored() -> None:
    message = {"role": "assistant", "content": "x"}
    ignored_fields: dict[str, Any] = {
        "audio": None,
        "function_call": None,
        "tool_call_id": None,
        "annotations": [],
    }

    assert parse(messages=[USER, {**message, **ignored_fields}]) == parse(messages=[USER, message])
    with pytest.raises(BadRequestError, match="annotations: unknown field"):
        parse(messages=[USER, {**message, "annotations": [{"type": "url_citation"}]}])
