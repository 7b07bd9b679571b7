"""OpenAI's types validate every response strictly and serialize it to the same JSON."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import openai.types
import pytest
from openai.types import chat as chat_types
from openai.types import responses as response_types
from pydantic import BaseModel, TypeAdapter

from aiomlc import AsyncMLCEngine
from aiomlc.api.session.loader import Loader
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.grammar.grammar import Grammar
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader, fake_model

pytestmark = pytest.mark.timeout(20)
REASONING = "<think>Hm.</think>"
CALL = 'So <tool_call>{"name": "f", "arguments": {"a": "b"}}</tool_call>'
REPLIES = ["Hi!", "", CALL, CALL + CALL, REASONING + "Hi!", REASONING + CALL, "<think>Hm"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
EFFORT_VARIABLE = "{% if reasoning_effort %}{% endif %}"
# Extensions of OpenAI's API, by the client's class and field.
REASONING_FIELDS = {"ChatCompletionMessage.reasoning_content", "ChoiceDelta.reasoning_content"}
TIMING_FIELDS = {"CompletionUsage.extra"}  # Only present if the core measures times.


class AnyGrammar:
    """A grammar compiler that accepts every grammar; the fake core's replies are fixed."""

    def compile(self, grammar: Grammar) -> object:
        return grammar.source


def loader(reply: str) -> Loader:
    async def load(model: object, **_: object) -> LoadedModel:
        fake = fake_model(FakeCore([reply]))
        assert fake.chat_template is not None
        return replace(
            fake,
            chat_template=ChatTemplate(fake.chat_template.source + EFFORT_VARIABLE),
            reasoning_format=ReasoningFormat("<think>", "</think>"),
            grammars=GrammarCache(AnyGrammar),
        )

    return load


def unchanged(dump: Any) -> Any:  # noqa: ANN401
    return dump


def extra_fields(value: object) -> Iterator[str]:
    """Yield the fields at any depth that OpenAI's types do not have."""
    if isinstance(value, BaseModel):
        yield from (f"{type(value).__name__}.{name}" for name in value.model_extra or ())
        yield from extra_fields([getattr(value, name) for name in type(value).model_fields])
    elif isinstance(value, list):
        for item in value:
            yield from extra_fields(item)
    elif isinstance(value, dict):
        yield from extra_fields(list(value.values()))


@cache
def type_adapter(openai_type: Any) -> TypeAdapter[Any]:  # noqa: ANN401
    """Return the adapter of a type, which takes long to build."""
    return TypeAdapter(openai_type)


def check(
    response: BaseModel,
    openai_type: Any,  # noqa: ANN401
    adapt: Callable[[Any], Any] = unchanged,
) -> set[str]:
    """Check that OpenAI's type round-trips the response; return the extension fields in it."""
    dump = adapt(response.model_dump(mode="json"))
    json_text = type_adapter(Any).dump_json(dump)
    parsed = type_adapter(openai_type).validate_json(json_text, strict=True)

    assert parsed.model_dump(mode="json", exclude_unset=True, by_alias=True) == dump
    return set(extra_fields(parsed))


def chat_tools(**function: object) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", **function}}]


ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "required", "tools": chat_tools()},
}
CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "truncated": {"max_tokens": 2},
    "logprobs": {"logprobs": True},
    "alternatives": {"logprobs": True, "top_logprobs": 3},
    "choices": {"n": 3},
    "choices_with_logprobs": {"n": 2, "logprobs": True, "top_logprobs": 1},
    "prompt_logprobs": {"prompt_logprobs": 2},
    "text": {"response_format": {"type": "text"}},
    "json_object": {"response_format": {"type": "json_object"}},
    "json_schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    },
    "tools": {"tools": chat_tools()},
    "tools_auto": {"tools": chat_tools(parameters=SCHEMA, strict=True), "tool_choice": "auto"},
    "tools_none": {"tools": chat_tools(), "tool_choice": "none"},
    "tools_required": {"tools": chat_tools(), "tool_choice": "required", "n": 2},
    "tools_named": {"tools": chat_tools(), "tool_choice": chat_tools()[0]},
    "tools_allowed": {"tools": chat_tools(), "tool_choice": ALLOWED},
    "one_call": {"tools": chat_tools(), "parallel_tool_calls": False, "logprobs": True},
    "tools_and_json": {"tools": chat_tools(), "response_format": {"type": "json_object"}},
    "effort": {"reasoning_effort": "low"},
    "not_separated": {"separate_reasoning": False},
}


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("name", CHATS)
async def test_openai_types_accept_chat_completions_and_chunks(name: str, reply: str) -> None:
    options = CHATS[name]
    extra: set[str] = set()
    async with AsyncMLCEngine(loader=loader(reply)) as engine:
        create = engine.chat.completions.create
        messages = [{"role": "user", "content": "Hello"}]
        extra |= check(await create(messages=messages, **options), chat_types.ChatCompletion)
        for stream_options in (None, {"include_usage": False}, {"include_usage": True}):
            stream = await create(
                messages=messages, stream=True, stream_options=stream_options, **options
            )
            async for chunk in stream:
                extra |= check(chunk, chat_types.ChatCompletionChunk)

    expected: set[str] = set()
    if "Hm" in reply and name not in ("truncated", "not_separated"):
        expected |= REASONING_FIELDS
    if "prompt_logprobs" in options:
        expected |= {"ChatCompletion.prompt_logprobs", "ChatCompletionChunk.prompt_logprobs"}
    assert expected <= extra <= expected | TIMING_FIELDS


COMPLETIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "truncated": {"max_tokens": 2},
    "echo": {"echo": True},
    "logprobs": {"logprobs": 2},
    "echo_with_logprobs": {"echo": True, "logprobs": 2},
    "no_alternatives": {"logprobs": 0},
    "choices": {"n": 2, "logprobs": 1},
    "several": {"prompt": ["a", "bc"], "n": 2},
    "token_ids": {"prompt": [[97], [98, 99]]},
    "prompt_logprobs": {"prompt_logprobs": 1},
    "json_object": {"response_format": {"type": "json_object"}},
}


def fill_nulls(dump: dict[str, Any]) -> dict[str, Any]:
    """Replace nulls that OpenAI's API also returns although its types do not allow them."""
    for choice in dump["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"  # Null before the last chunk.
        if (logprobs := choice["logprobs"]) is not None:  # Null for the first echoed token.
            logprobs["token_logprobs"] = [entry or 0.0 for entry in logprobs["token_logprobs"]]
            logprobs["top_logprobs"] = [entry or {} for entry in logprobs["top_logprobs"]]

    return dump


@pytest.mark.parametrize("reply", ["Hi!", "", REASONING])
@pytest.mark.parametrize("name", COMPLETIONS)
async def test_openai_types_accept_text_completions_and_chunks(name: str, reply: str) -> None:
    options = {"prompt": "ab", **COMPLETIONS[name]}
    extra: set[str] = set()
    async with AsyncMLCEngine(loader=loader(reply)) as engine:
        create = engine.completions.create
        extra |= check(await create(**options), openai.types.Completion, fill_nulls)
        for stream_options in (None, {"include_usage": False}, {"include_usage": True}):
            stream = await create(stream=True, stream_options=stream_options, **options)
            async for event in stream:
                extra |= check(event, openai.types.Completion, fill_nulls)

    expected = {"CompletionChoice.prompt_logprobs"} if "prompt_logprobs" in options else set()
    assert expected <= extra <= expected | TIMING_FIELDS


async def test_openai_types_accept_a_non_streamed_completion_unchanged() -> None:
    async with AsyncMLCEngine(loader=loader("Hi!")) as engine:
        completion = await engine.completions.create(prompt=["a", "b"], logprobs=2)

    assert check(completion, openai.types.Completion) <= TIMING_FIELDS


def response_tools(**fields: object) -> list[dict[str, Any]]:
    tool = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}
    return [{**tool, **fields}]


NAMED = {"type": "function", "name": "f"}
RESPONSES: dict[str, dict[str, Any]] = {
    "plain": {},
    "truncated": {"max_output_tokens": 9},
    "echoed_fields": {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "metadata": {"a": "b"},
    },
    "text": {"text": {"format": {"type": "text"}}, "store": False},
    "json_object": {"text": {"format": {"type": "json_object"}}},
    "json_schema": {
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}
    },
    "tools": {"tools": response_tools(description="F.")},
    "tools_and_json": {
        "tools": response_tools(),
        "text": {"format": {"type": "json_object"}},
    },
    "minimal_tools": {"tools": [{"type": "function", "name": "f"}]},
    "tools_auto": {"tools": response_tools(strict=True), "tool_choice": "auto"},
    "tools_none": {"tools": response_tools(), "tool_choice": "none", "parallel_tool_calls": False},
    "tools_required": {"tools": response_tools(), "tool_choice": "required"},
    "tools_named": {"tools": response_tools(), "tool_choice": NAMED},
    "tools_allowed": {
        "tools": response_tools(),
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]},
    },
    "reasoning": {"reasoning": {"effort": "low", "summary": "auto"}},
}


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("name", RESPONSES)
async def test_openai_types_accept_responses_and_events(name: str, reply: str) -> None:
    extra: set[str] = set()
    async with AsyncMLCEngine(loader=loader(reply)) as engine:
        create = engine.responses.create
        extra |= check(await create(input="Hello", **RESPONSES[name]), response_types.Response)
        async for event in await create(input="Hello", stream=True, **RESPONSES[name]):
            extra |= check(event, response_types.ResponseStreamEvent)

    assert not extra


def decode_base64(dump: dict[str, Any]) -> dict[str, Any]:
    """Decode base64 embeddings, as the client does before it returns the response."""
    for item in dump["data"]:
        if isinstance(item["embedding"], str):
            packed = base64.b64decode(item["embedding"])
            item["embedding"] = list(struct.unpack(f"<{len(packed) // 4}f", packed))

    return dump


@pytest.mark.parametrize(
    "options",
    [
        {"input": "bd"},
        {"input": ["b", "cd"]},
        {"input": [1, 3]},
        {"input": ["b", "cd"], "encoding_format": "base64"},
        {"input": "bd", "dimensions": 2, "normalize": False, "model": "mine"},
    ],
)
async def test_openai_types_accept_embeddings(options: dict[str, Any]) -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        response = await engine.embeddings.create(**options)

    assert not check(response, openai.types.CreateEmbeddingResponse, decode_base64)


@pytest.mark.parametrize("as_models", [False, True])
async def test_messages_and_items_parsed_by_the_client_can_be_sent_back(*, as_models: bool) -> None:
    """Send back the client's models, or dicts of all their fields."""
    tools = chat_tools(parameters=SCHEMA)
    async with AsyncMLCEngine(loader=loader(REASONING + CALL)) as engine:
        create = engine.chat.completions.create
        messages: list[Any] = [{"role": "user", "content": "Hello"}]
        completion = await create(messages=messages, tools=tools)
        openai_completion = chat_types.ChatCompletion.model_validate_json(
            completion.model_dump_json()
        )
        message = openai_completion.choices[0].message
        assert message.tool_calls is not None
        call_id = message.tool_calls[0].id
        messages += [
            message if as_models else {**message.model_dump(), "annotations": []},
            {"role": "tool", "tool_call_id": call_id, "content": "5", "name": None},
        ]
        second_completion = await create(messages=messages, tools=tools)

        items: list[Any] = [{"role": "user", "content": "Hello"}]
        response = await engine.responses.create(input=items, tools=response_tools())
        openai_response = response_types.Response.model_validate_json(response.model_dump_json())
        items += [item if as_models else item.model_dump() for item in openai_response.output]
        call = next(item for item in openai_response.output if item.type == "function_call")
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "5"})
        second_response = await engine.responses.create(input=items, tools=response_tools())

    assert second_completion.usage is not None
    assert completion.usage is not None
    assert second_completion.usage.prompt_tokens > completion.usage.prompt_tokens
    assert second_response.status == "completed"
