"""Tests of the log-probabilities of prompts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, BadRequestError, ChatCompletion, Completion, MLCEngine
from aiomlc.api.generation.logprobs import FirstChoiceBuffer
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.stream import Delta
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
HALF = math.log(0.5)
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hé"}]


async def complete(core: FakeCore, prompt: Any, **options: Any) -> Completion:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        completion: Completion = await engine.completions.create(prompt=prompt, **options)
        return completion


async def chat(core: FakeCore, **options: Any) -> ChatCompletion:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        completion: ChatCompletion = await engine.chat.completions.create(messages=HELLO, **options)
        return completion


async def test_a_chat_has_an_entry_for_each_prompt_token_but_the_first() -> None:
    core = FakeCore(["Hi"])
    completion = await chat(core, prompt_logprobs=1)

    entries = completion.model_dump()["prompt_logprobs"]
    assert entries[0] is None
    assert len(entries) == len(core.prompts[0])
    assert bytes(byte for entry in entries[1:] for byte in entry["bytes"]) == bytes(
        core.prompts[0][1:]
    )
    other = {"token": "i", "logprob": HALF, "bytes": [ord("i")]}
    assert entries[2] == {**other, "top_logprobs": [other]}
    assert completion.choices[0].logprobs is None


async def test_the_field_is_absent_unless_requested() -> None:
    assert "prompt_logprobs" not in (await chat(FakeCore())).model_dump()
    completion = await complete(FakeCore(), "abc", logprobs=1)
    assert "prompt_logprobs" not in completion.model_dump()["choices"][0]


async def test_only_the_first_chunk_of_a_stream_has_prompt_logprobs() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi", "Ho"]))) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, n=2, prompt_logprobs=0
        )
        chunks = [chunk async for chunk in stream]
        texts = await engine.completions.create(prompt="abc", stream=True, n=2, prompt_logprobs=0)
        events = [choice async for event in texts for choice in event.choices]

    assert chunks[0].prompt_logprobs is not None
    assert all(chunk.prompt_logprobs is None for chunk in chunks[1:])
    indices = [event.index for event in events if event.prompt_logprobs is not None]
    assert sorted(indices) == [0, 1], "every choice of a text completion has them"
    first = {event.index: event for event in reversed(events)}
    assert all(event.prompt_logprobs is not None for event in first.values())


async def test_only_the_first_choice_computes_prompt_logprobs() -> None:
    core = FakeCore(["a", "b", "c"])
    completion = await complete(core, "xyz", n=3, prompt_logprobs=2)

    assert [options.prompt_logprobs for options in core.options] == [2, None, None]
    entries = [choice.prompt_logprobs for choice in completion.choices]
    assert entries[0] is not None
    assert len(entries[0]) == 3
    assert entries == [entries[0]] * 3


async def test_each_prompt_has_its_own_prompt_logprobs() -> None:
    completion = await complete(FakeCore(["!"]), ["ab", "c"], prompt_logprobs=0)

    tokens = [
        [entry and entry.token for entry in choice.prompt_logprobs or ()]
        for choice in completion.choices
    ]
    assert tokens == [[None, "b"], [None]]


async def test_echo_combines_the_logprobs_of_prompt_and_completion() -> None:
    completion = await complete(FakeCore(["xy"]), "aéb", echo=True, logprobs=1)
    (choice,) = completion.choices
    logprobs = choice.logprobs

    assert choice.text == "aébxy"
    assert logprobs is not None
    assert logprobs.tokens == ["a", "\ufffd", "\ufffd", "b", "x", "y"]
    assert logprobs.text_offset == [0, 1, 1, 2, 3, 4]
    assert logprobs.token_logprobs == [None, *[HALF] * 5]
    assert logprobs.top_logprobs[0] is None
    assert logprobs.top_logprobs[4] == {"x": HALF}
    assert choice.prompt_logprobs is None


async def test_with_echo_every_choice_has_the_logprobs_of_its_prompt() -> None:
    core = FakeCore(["1", "2", "3", "4"])
    completion = await complete(core, ["ab", "cd"], n=2, echo=True, logprobs=0)
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["1", "2", "3", "4"]))) as engine:
        stream = await engine.completions.create(
            prompt=["ab", "cd"], n=2, echo=True, logprobs=0, stream=True
        )
        tokens: list[list[str]] = [[], [], [], []]
        async for event in stream:
            for choice in event.choices:
                tokens[choice.index] += choice.logprobs.tokens if choice.logprobs else []

    complete_tokens = [choice.logprobs.tokens for choice in completion.choices if choice.logprobs]
    assert complete_tokens == [["a", "b", "1"], ["a", "b", "2"], ["c", "d", "3"], ["c", "d", "4"]]
    assert tokens == complete_tokens


async def test_logprobs_and_prompt_logprobs_have_their_own_number_of_alternatives() -> None:
    core = FakeCore(["x"])
    completion = await complete(core, "ab", echo=True, logprobs=1, prompt_logprobs=3)
    (choice,) = completion.choices

    assert core.options[0].prompt_logprobs == 3
    assert choice.logprobs is not None
    assert choice.prompt_logprobs is not None
    assert choice.logprobs.top_logprobs[1] == {"b": HALF}
    assert choice.prompt_logprobs[1] is not None
    assert len(choice.prompt_logprobs[1].top_logprobs) == 3


async def test_best_of_ignores_the_logprobs_of_the_prompt() -> None:
    completion = await complete(
        FakeCore(["a", "b"]), "p" * 9, best_of=2, n=1, echo=True, logprobs=0
    )

    assert completion.choices[0].logprobs is not None
    assert len(completion.choices[0].logprobs.tokens) == 10


@pytest.mark.parametrize("number", [-1, 21, True, "1"])
async def test_an_invalid_number_is_named_in_the_error(number: object) -> None:
    with pytest.raises(BadRequestError) as caught:
        await chat(FakeCore(), prompt_logprobs=number)

    assert caught.value.param == "prompt_logprobs"


async def test_the_final_completion_of_an_event_stream_has_prompt_logprobs() -> None:
    async with (
        AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi"]))) as engine,
        engine.chat.completions.stream(messages=HELLO, prompt_logprobs=0) as events,
    ):
        async for _ in events:
            pass

        completion = await events.get_final_completion()

    assert completion.prompt_logprobs is not None
    assert completion.prompt_logprobs[0] is None


def test_the_blocking_engine_returns_prompt_logprobs() -> None:
    with MLCEngine(loader=fake_loader(FakeCore(["Hi"]))) as engine:
        completion = engine.chat.completions.create(messages=HELLO, prompt_logprobs=0)

    assert completion.prompt_logprobs is not None


def delta(choice: int, text: str, prompt: tuple[TokenLogprob, ...] = ()) -> Delta:
    return Delta(text, (1,), None, 2, 1, (), 0, choice, prompt_logprobs=prompt)


def test_other_choices_are_buffered_until_choice_0_has_a_delta() -> None:
    buffer = FirstChoiceBuffer()
    prompt_logprobs = (TokenLogprob(7, -1.0, ()),)

    assert buffer.put(delta(1, "a")) == []
    assert buffer.put(delta(2, "b")) == []
    assert [each.text for each in buffer.put(delta(0, "c", prompt_logprobs))] == ["c", "a", "b"]
    assert buffer.prompt == prompt_logprobs
    assert [each.text for each in buffer.put(delta(1, "d"))] == ["d"]


def test_the_fake_core_returns_prompt_logprobs_with_the_first_token() -> None:
    core = FakeCore(["ab", ""])
    core.submit(Prompt([1, 2, 3]), SequenceOptions(prompt_logprobs=1))
    core.submit(Prompt([1, 2]), SequenceOptions(prompt_logprobs=0))
    core.step()
    core.step()

    records = [(r.sequence_id, [t.token_id for t in r.prompt_logprobs]) for r in core.drain()]
    assert records == [(1, [2, 3]), (2, [2]), (1, [])]


async def test_a_suffix_excludes_logprobs_with_echo() -> None:
    with pytest.raises(BadRequestError) as caught:
        await complete(FakeCore(), "a", suffix="b", echo=True, logprobs=0)

    assert caught.value.param == "logprobs"
