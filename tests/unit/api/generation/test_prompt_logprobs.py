"""Log-probabilities of prompts: asked for, told once, and first."""

from __future__ import annotations

import math
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, BadRequestError, ChatCompletion, Completion, MLCEngine
from aiomlc.api.generation.logprobs import FirstChoiceBuffer
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.stream import Delta
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
HALF = math.log(0.5)
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hé"}]


async def complete(core: FakeCore, prompt: Any, **options: Any) -> Completion:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        answer: Completion = await engine.completions.create(prompt=prompt, **options)
        return answer


async def chat(core: FakeCore, **options: Any) -> ChatCompletion:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        answer: ChatCompletion = await engine.chat.completions.create(messages=HELLO, **options)
        return answer


async def test_a_chat_has_an_entry_for_each_token_but_the_first() -> None:
    core = FakeCore(["Hi"])
    answer = await chat(core, prompt_logprobs=1)

    told = answer.model_dump()["prompt_logprobs"]
    assert told[0] is None
    assert len(told) == len(core.prompts[0])
    assert bytes(byte for entry in told[1:] for byte in entry["bytes"]) == bytes(
        core.prompts[0][1:]
    )
    other = {"token": "i", "logprob": HALF, "bytes": [ord("i")]}
    assert told[2] == {**other, "top_logprobs": [other]}
    assert answer.choices[0].logprobs is None


async def test_what_was_not_asked_for_is_not_in_the_answer() -> None:
    assert "prompt_logprobs" not in (await chat(FakeCore())).model_dump()
    answer = await complete(FakeCore(), "abc", logprobs=1)
    assert "prompt_logprobs" not in answer.model_dump()["choices"][0]


async def test_a_stream_tells_them_on_its_first_chunk_alone() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi", "Ho"]))) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, n=2, prompt_logprobs=0
        )
        chunks = [chunk async for chunk in stream]
        texts = await engine.completions.create(prompt="abc", stream=True, n=2, prompt_logprobs=0)
        events = [choice async for event in texts for choice in event.choices]

    assert chunks[0].prompt_logprobs is not None
    assert all(chunk.prompt_logprobs is None for chunk in chunks[1:])
    told = [event.index for event in events if event.prompt_logprobs is not None]
    assert sorted(told) == [0, 1], "every choice of plain completions has its own"
    first = {event.index: event for event in reversed(events)}
    assert all(event.prompt_logprobs is not None for event in first.values())


async def test_the_prompt_is_scored_for_the_first_choice_alone() -> None:
    core = FakeCore(["a", "b", "c"])
    answer = await complete(core, "xyz", n=3, prompt_logprobs=2)

    assert [options.prompt_logprobs for options in core.options] == [2, None, None]
    told = [choice.prompt_logprobs for choice in answer.choices]
    assert told[0] is not None
    assert len(told[0]) == 3
    assert told == [told[0]] * 3


async def test_every_prompt_has_its_own() -> None:
    answer = await complete(FakeCore(["!"]), ["ab", "c"], prompt_logprobs=0)

    tokens = [
        [entry and entry.token for entry in choice.prompt_logprobs or ()]
        for choice in answer.choices
    ]
    assert tokens == [[None, "b"], [None]]


async def test_echo_tells_prompt_and_answer_in_one_list() -> None:
    answer = await complete(FakeCore(["xy"]), "aéb", echo=True, logprobs=1)
    (choice,) = answer.choices
    logprobs = choice.logprobs

    assert choice.text == "aébxy"
    assert logprobs is not None
    assert logprobs.tokens == ["a", "\ufffd", "\ufffd", "b", "x", "y"]
    assert logprobs.text_offset == [0, 1, 1, 2, 3, 4]
    assert logprobs.token_logprobs == [None, *[HALF] * 5]
    assert logprobs.top_logprobs[0] is None
    assert logprobs.top_logprobs[4] == {"x": HALF}
    assert choice.prompt_logprobs is None


async def test_echo_of_several_choices_and_prompts_has_the_prompt_in_each() -> None:
    core = FakeCore(["1", "2", "3", "4"])
    answer = await complete(core, ["ab", "cd"], n=2, echo=True, logprobs=0)
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["1", "2", "3", "4"]))) as engine:
        stream = await engine.completions.create(
            prompt=["ab", "cd"], n=2, echo=True, logprobs=0, stream=True
        )
        tokens: list[list[str]] = [[], [], [], []]
        async for event in stream:
            for choice in event.choices:
                tokens[choice.index] += choice.logprobs.tokens if choice.logprobs else []

    whole = [choice.logprobs.tokens for choice in answer.choices if choice.logprobs]
    assert whole == [["a", "b", "1"], ["a", "b", "2"], ["c", "d", "3"], ["c", "d", "4"]]
    assert tokens == whole


async def test_both_fields_have_as_many_alternatives_as_each_asks_for() -> None:
    core = FakeCore(["x"])
    answer = await complete(core, "ab", echo=True, logprobs=1, prompt_logprobs=3)
    (choice,) = answer.choices

    assert core.options[0].prompt_logprobs == 3
    assert choice.logprobs is not None
    assert choice.prompt_logprobs is not None
    assert choice.logprobs.top_logprobs[1] == {"b": HALF}
    assert choice.prompt_logprobs[1] is not None
    assert len(choice.prompt_logprobs[1].top_logprobs) == 3


async def test_a_prompt_does_not_count_for_the_best_of_several() -> None:
    answer = await complete(FakeCore(["a", "b"]), "p" * 9, best_of=2, n=1, echo=True, logprobs=0)

    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.tokens) == 10


@pytest.mark.parametrize("number", [-1, 21, True, "1"])
async def test_a_wrong_number_is_named(number: object) -> None:
    with pytest.raises(BadRequestError) as caught:
        await chat(FakeCore(), prompt_logprobs=number)

    assert caught.value.param == "prompt_logprobs"


async def test_an_event_stream_sums_to_the_same() -> None:
    async with (
        AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi"]))) as engine,
        engine.chat.completions.stream(messages=HELLO, prompt_logprobs=0) as events,
    ):
        async for _ in events:
            pass

        answer = await events.get_final_completion()

    assert answer.prompt_logprobs is not None
    assert answer.prompt_logprobs[0] is None


def test_the_other_engine_tells_them_too() -> None:
    with MLCEngine(loader=fake_loader(FakeCore(["Hi"]))) as engine:
        answer = engine.chat.completions.create(messages=HELLO, prompt_logprobs=0)

    assert answer.prompt_logprobs is not None


def delta(choice: int, text: str, prompt: tuple[TokenLogprob, ...] = ()) -> Delta:
    return Delta(text, (1,), None, 2, 1, (), 0, choice, prompt_logprobs=prompt)


def test_the_first_choice_goes_through_the_gate_first() -> None:
    gate = FirstChoiceBuffer()
    scored = (TokenLogprob(7, -1.0, ()),)

    assert gate.put(delta(1, "a")) == []
    assert gate.put(delta(2, "b")) == []
    assert [each.text for each in gate.put(delta(0, "c", scored))] == ["c", "a", "b"]
    assert gate.prompt == scored
    assert [each.text for each in gate.put(delta(1, "d"))] == ["d"]


def test_the_double_tells_them_with_the_first_token() -> None:
    core = FakeCore(["ab", ""])
    core.submit([1, 2, 3], SequenceOptions(prompt_logprobs=1))
    core.submit([1, 2], SequenceOptions(prompt_logprobs=0))
    core.step()
    core.step()

    told = [(r.sequence_id, [t.token_id for t in r.prompt_logprobs]) for r in core.drain()]
    assert told == [(1, [2, 3]), (2, [2]), (1, [])]


async def test_a_suffix_excludes_the_echo_of_log_probabilities() -> None:
    with pytest.raises(BadRequestError) as caught:
        await complete(FakeCore(), "a", suffix="b", echo=True, logprobs=0)

    assert caught.value.param == "logprobs"
