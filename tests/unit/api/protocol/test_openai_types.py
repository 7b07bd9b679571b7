"""The real client's types accept all that we answer, strictly, and dump it to the same JSON."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from aiomlc import AsyncMLCEngine
from aiomlc.api.session.loader import Loader
from aiomlc.runtime.grammar.grammar import Grammar, GrammarCache
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader, fake_model

openai_types = pytest.importorskip("openai.types")
chat_types = pytest.importorskip("openai.types.chat")
response_types = pytest.importorskip("openai.types.responses")

pytestmark = pytest.mark.timeout(20)
THOUGHT = "<think>Hm.</think>"
CALL = 'So <tool_call>{"name": "f", "arguments": {"a": "b"}}</tool_call>'
REPLIES = ["Hi!", "", CALL, CALL + CALL, THOUGHT + "Hi!", THOUGHT + CALL, "<think>Hm"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
READS_EFFORT = "{% if reasoning_effort %}{% endif %}"
# The fields that are ours, by the client's class. Those of a case must be there, and no others.
THOUGHTS = {"ChatCompletionMessage.reasoning_content", "ChoiceDelta.reasoning_content"}
TIMES = {"CompletionUsage.extra"}  # Where the core tells times.


class AnyGrammar:
    """A compiler that takes every grammar; the script of the core is what keeps to it."""

    def compile(self, grammar: Grammar) -> object:
        return grammar.source


def loader(reply: str) -> Loader:
    async def load(model: object, **_: object) -> LoadedModel:
        fake = fake_model(FakeCore([reply]))
        assert fake.chat_template is not None
        return replace(
            fake,
            chat_template=ChatTemplate(fake.chat_template.source + READS_EFFORT),
            reasoning_format=ReasoningFormat("<think>", "</think>"),
            grammars=GrammarCache(AnyGrammar),
        )

    return load


def as_it_is(dump: Any) -> Any:  # noqa: ANN401
    return dump


def extras(value: object) -> Iterator[str]:
    """The fields that the client's types do not have, at any depth."""
    if isinstance(value, BaseModel):
        yield from (f"{type(value).__name__}.{name}" for name in value.model_extra or ())
        yield from extras([getattr(value, name) for name in type(value).model_fields])
    elif isinstance(value, list):
        for item in value:
            yield from extras(item)
    elif isinstance(value, dict):
        yield from extras(list(value.values()))


def read(
    ours: BaseModel,
    theirs: Any,  # noqa: ANN401
    fill: Callable[[Any], Any] = as_it_is,
) -> set[str]:
    """Read strictly what is equal when it is written again; the fields that are ours."""
    dump = fill(ours.model_dump(mode="json"))
    json_text = TypeAdapter(Any).dump_json(dump)
    parsed = TypeAdapter(theirs).validate_json(json_text, strict=True)

    assert parsed.model_dump(mode="json", exclude_unset=True, by_alias=True) == dump
    return set(extras(parsed))


def chat_tools(**function: object) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", **function}}]


ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "required", "tools": chat_tools()},
}
CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cut": {"max_tokens": 2},
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
    "tools_beside_json": {"tools": chat_tools(), "response_format": {"type": "json_object"}},
    "effort": {"reasoning_effort": "low"},
    "together": {"separate_reasoning": False},
}


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("name", CHATS)
async def test_chat_completions_and_chunks(name: str, reply: str) -> None:
    options = CHATS[name]
    found: set[str] = set()
    async with AsyncMLCEngine(loader=loader(reply)) as engine:
        create = engine.chat.completions.create
        messages = [{"role": "user", "content": "Hello"}]
        found |= read(await create(messages=messages, **options), chat_types.ChatCompletion)
        for stream_options in (None, {"include_usage": False}, {"include_usage": True}):
            stream = await create(
                messages=messages, stream=True, stream_options=stream_options, **options
            )
            async for chunk in stream:
                found |= read(chunk, chat_types.ChatCompletionChunk)

    ours: set[str] = set()
    if "Hm" in reply and name not in ("cut", "together"):
        ours |= THOUGHTS
    if "prompt_logprobs" in options:
        ours |= {"ChatCompletion.prompt_logprobs", "ChatCompletionChunk.prompt_logprobs"}
    assert ours <= found <= ours | TIMES


COMPLETIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cut": {"max_tokens": 2},
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


def filled(dump: dict[str, Any]) -> dict[str, Any]:
    """Without the nulls that OpenAI answers, too, although its types have none there."""
    for choice in dump["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"  # Of an event in the middle.
        if (logprobs := choice["logprobs"]) is not None:  # Of the first token that is echoed.
            logprobs["token_logprobs"] = [entry or 0.0 for entry in logprobs["token_logprobs"]]
            logprobs["top_logprobs"] = [entry or {} for entry in logprobs["top_logprobs"]]

    return dump


@pytest.mark.parametrize("reply", ["Hi!", "", THOUGHT])
@pytest.mark.parametrize("name", COMPLETIONS)
async def test_completions_and_their_events(name: str, reply: str) -> None:
    options = {"prompt": "ab", **COMPLETIONS[name]}
    found: set[str] = set()
    async with AsyncMLCEngine(loader=loader(reply)) as engine:
        create = engine.completions.create
        found |= read(await create(**options), openai_types.Completion, filled)
        for stream_options in (None, {"include_usage": False}, {"include_usage": True}):
            stream = await create(stream=True, stream_options=stream_options, **options)
            async for event in stream:
                found |= read(event, openai_types.Completion, filled)

    ours = {"CompletionChoice.prompt_logprobs"} if "prompt_logprobs" in options else set()
    assert ours <= found <= ours | TIMES


async def test_a_whole_completion_needs_no_filling() -> None:
    async with AsyncMLCEngine(loader=loader("Hi!")) as engine:
        whole = await engine.completions.create(prompt=["a", "b"], logprobs=2)

    assert read(whole, openai_types.Completion) <= TIMES


def response_tools(**fields: object) -> list[dict[str, Any]]:
    tool = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}
    return [{**tool, **fields}]


NAMED = {"type": "function", "name": "f"}
RESPONSES: dict[str, dict[str, Any]] = {
    "plain": {},
    "cut": {"max_output_tokens": 9},
    "told": {"instructions": "Be brief.", "temperature": 0.5, "top_p": 0.9, "metadata": {"a": "b"}},
    "text": {"text": {"format": {"type": "text"}}, "store": False},
    "json_object": {"text": {"format": {"type": "json_object"}}},
    "json_schema": {
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}
    },
    "tools": {"tools": response_tools(description="F.")},
    "tools_beside_json": {
        "tools": response_tools(),
        "text": {"format": {"type": "json_object"}},
    },
    "bare_tools": {"tools": [{"type": "function", "name": "f"}]},
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
async def test_responses_and_their_events(name: str, reply: str) -> None:
    found: set[str] = set()
    async with AsyncMLCEngine(loader=loader(reply)) as engine:
        create = engine.responses.create
        found |= read(await create(input="Hello", **RESPONSES[name]), response_types.Response)
        async for event in await create(input="Hello", stream=True, **RESPONSES[name]):
            found |= read(event, response_types.ResponseStreamEvent)

    assert not found


def unpacked(dump: dict[str, Any]) -> dict[str, Any]:
    """As the client's program sees it: the client decodes base64 before it hands an answer out."""
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
async def test_embeddings(options: dict[str, Any]) -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        answer = await engine.embeddings.create(**options)

    assert not read(answer, openai_types.CreateEmbeddingResponse, unpacked)


@pytest.mark.parametrize("as_model", [False, True])
async def test_what_the_client_read_can_be_sent_back(*, as_model: bool) -> None:
    """As programs do: the message as the client's model, or all the fields of that."""
    tools = chat_tools(parameters=SCHEMA)
    async with AsyncMLCEngine(loader=loader(THOUGHT + CALL)) as engine:
        create = engine.chat.completions.create
        messages: list[Any] = [{"role": "user", "content": "Hello"}]
        answer = await create(messages=messages, tools=tools)
        told = chat_types.ChatCompletion.model_validate_json(answer.model_dump_json())
        message = told.choices[0].message
        call_id = message.tool_calls[0].id
        messages += [
            message if as_model else {**message.model_dump(), "annotations": []},
            {"role": "tool", "tool_call_id": call_id, "content": "5", "name": None},
        ]
        again = await create(messages=messages, tools=tools)

        items: list[Any] = [{"role": "user", "content": "Hello"}]
        response = await engine.responses.create(input=items, tools=response_tools())
        read = response_types.Response.model_validate_json(response.model_dump_json())
        items += [item if as_model else item.model_dump() for item in read.output]
        call = next(item for item in read.output if item.type == "function_call")
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "5"})
        more = await engine.responses.create(input=items, tools=response_tools())

    assert again.usage is not None
    assert answer.usage is not None
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens
    assert more.status == "completed"
