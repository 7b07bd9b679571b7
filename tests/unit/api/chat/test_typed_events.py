"""An answer that is a value of a type, as events."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from aiomlc.runtime.grammar.grammar import Grammar, GrammarCache
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
    """What pydantic knows nothing of."""


class AnyGrammar:
    """A compiler of grammars that the fake core does not look at."""

    def compile(self, grammar: Grammar) -> object:
        return grammar


def loader_of(core: FakeCore) -> Loader:
    async def load(model: object, **_: object) -> LoadedModel:
        return replace(fake_model(core), grammars=GrammarCache(AnyGrammar))

    return load


def check(events: list[TypedChatEvent[Person]]) -> None:
    """The events of Mia."""
    deltas = [event for event in events if event.type == "content.delta"]
    whole = [event for event in events if event.type == "content.done"]
    told = [event.parsed for event in deltas]
    assert all(isinstance(value, dict) for value in told)
    assert {"name": "Mi"} in told
    assert {"name": "Mia"} in told
    assert told[-1] == json.loads(MIA)
    assert [event.parsed for event in whole] == [Person(name="Mia", age=31, mood="happy")]


async def test_the_value_grows_and_is_one_of_the_type_in_the_end() -> None:
    core = FakeCore([MIA], hand_stepped=True)
    seen = []
    async with (
        AsyncMLCEngine(loader=loader_of(core)) as engine,
        engine.chat.completions.stream(messages=HELLO, response_format=Person) as events,
    ):
        core.allow(1)
        async for event in events:
            seen.append(event)
            if event.type == "chunk":
                core.allow(1)

        check(seen)
        final = await events.get_final_completion()

    assert final.choices[0].message.parsed == Person(name="Mia", age=31, mood="happy")
    assert final.choices[0].message.content == MIA


def test_the_blocking_engine_tells_the_same_values() -> None:
    core = FakeCore([MIA], hand_stepped=True)
    seen = []
    with (
        MLCEngine(loader=loader_of(core)) as engine,
        engine.chat.completions.stream(messages=HELLO, response_format=Person) as events,
    ):
        core.allow(1)
        for event in events:
            seen.append(event)
            if event.type == "chunk":
                core.allow(1)

        check(seen)
        final = events.get_final_completion()

    assert final.choices[0].message.parsed == Person(name="Mia", age=31, mood="happy")


def test_the_clients_own_sum_of_the_chunks_has_the_same_values() -> None:
    openai_chat = pytest.importorskip("openai.lib.streaming.chat")
    chunk_type = pytest.importorskip("openai.types.chat").ChatCompletionChunk
    state = openai_chat.ChatCompletionStreamState(response_format=Person)
    expected: list[Any] = []
    ours: list[Any] = []
    with (
        MLCEngine(loader=loader_of(FakeCore([MIA]))) as engine,
        engine.chat.completions.stream(messages=HELLO, response_format=Person) as events,
    ):
        for event in events:
            if event.type == "chunk":
                expected += state.handle_chunk(chunk_type.model_validate(event.chunk.model_dump()))
            ours.append(event)

    def content(told: list[Any], kind: str, field: str) -> list[Any]:
        return [getattr(event, field) for event in told if event.type == kind]

    assert content(ours, "content.done", "parsed") == content(expected, "content.done", "parsed")
    snapshots = content(expected, "content.delta", "snapshot")
    assert content(ours, "content.delta", "snapshot") == [text for text in snapshots if text]


@pytest.mark.parametrize(
    ("reply", "options", "reason"),
    [(MIA, {"max_tokens": 12}, "cut at the limit"), (TOM, {}, "too young")],
)
async def test_a_content_that_is_no_value_is_told_of_up_to_its_end(
    reply: str, options: dict[str, Any], reason: str
) -> None:
    told: list[str] = []

    async def read(events: ChatEventStream[Person, ParsedChatCompletion[Person]]) -> None:
        async for event in events:
            told.extend([event.delta] if event.type == "content.delta" else [])

    async with (
        AsyncMLCEngine(loader=loader_of(FakeCore([reply]))) as engine,
        engine.chat.completions.stream(messages=HELLO, response_format=Person, **options) as events,
    ):
        with pytest.raises(IncompleteAnswerError, match=reason) as caught:
            await read(events)
        with pytest.raises(IncompleteAnswerError, match=reason):
            await events.get_final_completion()

    assert "".join(told) == caught.value.text == reply[: options.get("max_tokens")]


async def test_each_choice_has_a_value_of_its_own() -> None:
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


async def test_a_form_that_is_no_type_makes_no_value() -> None:
    async with (
        AsyncMLCEngine(loader=loader_of(FakeCore([MIA]))) as engine,
        engine.chat.completions.stream(
            messages=HELLO, response_format={"type": "json_object"}
        ) as events,
    ):
        seen = [event async for event in events]
        final = await events.get_final_completion()

    assert {e.parsed for e in seen if e.type in {"content.delta", "content.done"}} == {None}
    assert final.choices[0].message.content == MIA


@pytest.mark.parametrize("kind", [Callable[[], int], Opaque])
def test_what_no_answer_can_be_is_refused_by_name(kind: Any) -> None:  # noqa: ANN401
    with MLCEngine(loader=loader_of(FakeCore([MIA]))) as engine:
        for ask in (engine.chat.completions.stream, engine.chat.completions.parse):
            with pytest.raises(BadRequestError, match="no answer can be") as caught:
                ask(messages=HELLO, response_format=kind)

            assert caught.value.param == "response_format"


@given(VALUES)
def test_whatever_is_there_of_a_value_has_one_so_far(value: object) -> None:
    text = json.dumps(value)
    told = [ContentDeltaEvent("", text[:end], is_json=True).parsed for end in range(len(text) + 1)]

    assert told[0] is None
    assert told[-1] == value
    if isinstance(value, (dict, list)):
        assert {type(part) for part in told[1:]} == {type(value)}
