"""Event streams of typed output."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    IncompleteAnswerError,
    MLCEngine,
    ParsedChatCompletion,
)
from aiomlc.api.chat.events import ChatEventStream, ContentDeltaEvent, TypedChatEvent
from aiomlc.api.session.loader import Loader
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.grammar.grammar import Grammar
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.testing import FakeCore, fake_model

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
MIA = '{"name": "Mia", "age": 31, "mood": "happy"}'
TOM = '{"name": "Tom", "age": 7, "mood": "sad"}'
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=8,
)


class Person(BaseModel):
    name: str
    age: int
    mood: Literal["happy", "sad"]

    def model_post_init(self, context: Any) -> None:  # noqa: ANN401
        if self.age < 10:
            raise ValueError("too young")


class Opaque:
    """A class that pydantic does not support."""


class AnyGrammar:
    """A grammar compiler that accepts every grammar; the fake core ignores the result."""

    def compile(self, grammar: Grammar) -> object:
        return grammar


def loader_of(core: FakeCore) -> Loader:
    async def load(model: object, **_: object) -> LoadedModel:
        return replace(fake_model(core), grammars=GrammarCache(AnyGrammar))

    return load


def check(events: list[TypedChatEvent[Person]]) -> None:
    """Check the events of the reply `MIA`."""
    deltas = [event for event in events if event.type == "content.delta"]
    done = [event for event in events if event.type == "content.done"]
    partial_values = [event.parsed for event in deltas]
    assert all(isinstance(value, dict) for value in partial_values)
    assert {"name": "Mi"} in partial_values
    assert {"name": "Mia"} in partial_values
    assert partial_values[-1] == json.loads(MIA)
    assert [event.parsed for event in done] == [Person(name="Mia", age=31, mood="happy")]


async def test_deltas_have_partial_values_and_the_final_value_is_of_the_type() -> None:
    core = FakeCore([MIA], hand_stepped=True)
    received = []
    async with (
        AsyncMLCEngine(loader=loader_of(core)) as engine,
        engine.chat.completions.stream(messages=HELLO, response_format=Person) as events,
    ):
        core.allow(1)
        async for event in events:
            received.append(event)
            if event.type == "chunk":
                core.allow(1)

        check(received)
        final = await events.get_final_completion()

    assert final.choices[0].message.parsed == Person(name="Mia", age=31, mood="happy")
    assert final.choices[0].message.content == MIA


def test_the_blocking_engine_yields_the_same_values() -> None:
    core = FakeCore([MIA], hand_stepped=True)
    received = []
    with (
        MLCEngine(loader=loader_of(core)) as engine,
        engine.chat.completions.stream(messages=HELLO, response_format=Person) as events,
    ):
        core.allow(1)
        for event in events:
            received.append(event)
            if event.type == "chunk":
                core.allow(1)

        check(received)
        final = events.get_final_completion()

    assert final.choices[0].message.parsed == Person(name="Mia", age=31, mood="happy")


def test_openais_accumulator_of_the_chunks_yields_the_same_values() -> None:
    state = ChatCompletionStreamState(response_format=Person)
    expected: list[Any] = []
    received: list[Any] = []
    with (
        MLCEngine(loader=loader_of(FakeCore([MIA]))) as engine,
        engine.chat.completions.stream(messages=HELLO, response_format=Person) as events,
    ):
        for event in events:
            if event.type == "chunk":
                chunk = ChatCompletionChunk.model_validate(event.chunk.model_dump())
                expected += state.handle_chunk(chunk)
            received.append(event)

    def values(events: list[Any], event_type: str, field: str) -> list[Any]:
        return [getattr(event, field) for event in events if event.type == event_type]

    assert values(received, "content.done", "parsed") == values(expected, "content.done", "parsed")
    snapshots = values(expected, "content.delta", "snapshot")
    assert values(received, "content.delta", "snapshot") == [text for text in snapshots if text]


@pytest.mark.parametrize(
    ("reply", "options", "reason"),
    [(MIA, {"max_tokens": 12}, "cut off at max_tokens"), (TOM, {}, "too young")],
)
async def test_invalid_content_is_streamed_until_its_end_and_then_raised(
    reply: str, options: dict[str, Any], reason: str
) -> None:
    deltas: list[str] = []

    async def read(events: ChatEventStream[Person, ParsedChatCompletion[Person]]) -> None:
        async for event in events:
            deltas.extend([event.delta] if event.type == "content.delta" else [])

    async with (
        AsyncMLCEngine(loader=loader_of(FakeCore([reply]))) as engine,
        engine.chat.completions.stream(messages=HELLO, response_format=Person, **options) as events,
    ):
        with pytest.raises(IncompleteAnswerError, match=reason) as caught:
            await read(events)
        with pytest.raises(IncompleteAnswerError, match=reason):
            await events.get_final_completion()

    assert "".join(deltas) == caught.value.text == reply[: options.get("max_tokens")]


async def test_each_choice_has_its_own_value() -> None:
    replies = [MIA, MIA.replace("Mia", "Tom")]
    async with (
        AsyncMLCEngine(loader=loader_of(FakeCore(replies))) as engine,
        engine.chat.completions.stream(messages=HELLO, response_format=Person, n=2) as events,
    ):
        names = [
            event.parsed.name
            async for event in events
            if event.type == "content.done" and event.parsed is not None
        ]
        final = await events.get_final_completion()

    values = [choice.message.parsed for choice in final.choices]
    assert sorted(names) == ["Mia", "Tom"]
    assert [value.name for value in values if value is not None] == ["Mia", "Tom"]


async def test_a_response_format_without_a_type_has_no_parsed_value() -> None:
    async with (
        AsyncMLCEngine(loader=loader_of(FakeCore([MIA]))) as engine,
        engine.chat.completions.stream(
            messages=HELLO, response_format={"type": "json_object"}
        ) as events,
    ):
        received = [event async for event in events]
        final = await events.get_final_completion()

    assert {e.parsed for e in received if e.type in {"content.delta", "content.done"}} == {None}
    assert final.choices[0].message.content == MIA


@pytest.mark.parametrize("kind", [Callable[[], int], Opaque])
def test_an_unsupported_type_is_rejected(kind: Any) -> None:  # noqa: ANN401
    with MLCEngine(loader=loader_of(FakeCore([MIA]))) as engine:
        for ask in (engine.chat.completions.stream, engine.chat.completions.parse):
            with pytest.raises(BadRequestError, match="pydantic") as caught:
                ask(messages=HELLO, response_format=kind)

            assert caught.value.param == "response_format"


@given(VALUES)
def test_every_prefix_of_a_json_value_has_a_partial_value(value: object) -> None:
    text = json.dumps(value)
    partial_values = [
        ContentDeltaEvent("", text[:end], is_json=True).parsed for end in range(len(text) + 1)
    ]

    assert partial_values[0] is None
    assert partial_values[-1] == value
    if isinstance(value, (dict, list)):
        assert {type(partial) for partial in partial_values[1:]} == {type(value)}
