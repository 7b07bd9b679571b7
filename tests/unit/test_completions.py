"""Plain completions: their shape, their prompts, their end."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, Completion, MLCEngine
from aiomlc.errors import (
    BadRequestError,
    DuplicateRequestError,
    EngineDeadError,
    PromptTooLongError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.testing import FakeCore, fake_loader, fake_model

pytestmark = pytest.mark.timeout(20)


async def complete(core: FakeCore, prompt: Any, **options: Any) -> Completion:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        answer: Completion = await engine.completions.create(prompt=prompt, **options)
        return answer


async def stream(core: FakeCore, prompt: Any, **options: Any) -> list[Completion]:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        chunks = await engine.completions.create(prompt=prompt, stream=True, **options)
        return [chunk async for chunk in chunks]


async def test_a_completion_has_openais_shape() -> None:
    answer = await complete(FakeCore(["abc"]), "Once", model="mine", request_id="cmpl-1")

    assert answer.model_dump() == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": answer.created,
        "model": "mine",
        "choices": [{"index": 0, "text": "abc", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 4,
            "completion_tokens": 3,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "system_fingerprint": None,
    }


async def test_a_stream_has_openais_shape() -> None:
    plain = await stream(FakeCore(["abc"]), "Once")
    counted = await stream(FakeCore(["abc"]), "Once", stream_options={"include_usage": True})

    choices = [choice for chunk in plain for choice in chunk.choices]
    assert "".join(choice.text for choice in choices) == "abc"
    assert [choice.finish_reason for choice in choices[-2:]] == [None, "stop"]
    assert all("usage" not in chunk.model_dump() for chunk in plain)
    assert all(chunk.model_dump()["usage"] is None for chunk in counted[:-1])
    assert (counted[-1].choices, counted[-1].usage is None) == ([], False)
    assert len({chunk.id for chunk in counted}) == 1


async def test_the_prompt_is_taken_as_it_is() -> None:
    text, ids = FakeCore(), FakeCore()
    await complete(text, "Once")
    await complete(ids, [5, 6, 7])

    assert fake_model(text).tokenizer.decode(text.prompts[0]) == "Once"
    assert ids.prompts == [[5, 6, 7]]


@pytest.mark.parametrize("prompt", [["a", "b"], [[1], [2, 3]], ["a", [2, 3]]])
async def test_each_of_several_prompts_has_its_choice(prompt: Any) -> None:  # noqa: ANN401
    whole = await complete(FakeCore(["one", "two"]), prompt)
    chunks = await stream(FakeCore(["one", "two"]), prompt)

    texts = ["", ""]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert [(choice.index, choice.text) for choice in whole.choices] == [(0, "one"), (1, "two")]
    assert texts == ["one", "two"]
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 6


async def test_several_prompts_run_together() -> None:
    core = FakeCore(["abc"])
    await complete(core, ["a", "b", "c", "d"])

    assert core.statistics().steps < 8


async def test_echo_begins_with_the_prompt() -> None:
    hi = fake_model(FakeCore()).tokenizer.encode("Hi")

    text = await complete(FakeCore(["!"]), ["Hi", "Ho"], echo=True)
    ids = await complete(FakeCore(["!"]), hi, echo=True)
    chunks = await stream(FakeCore(["!"]), "Hi", echo=True)

    assert [choice.text for choice in text.choices] == ["Hi!", "Ho!"]
    assert ids.choices[0].text == "Hi!"
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hi!"


async def test_the_options_reach_the_core() -> None:
    core = FakeCore(["abc"])
    answer = await complete(core, "Once", max_tokens=2, stop="x", temperature=0, seed=3)

    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("ab", "length")
    assert (core.options[0].stop, core.options[0].temperature) == (("x",), 0)
    assert core.options[0].seed == 3


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "n": 2}, "n"),
        ({"prompt": "a", "logprobs": 0}, "logprobs"),
        ({"prompt": "a", "messages": []}, "messages"),
        ({"prompt": "a", "echo": "yes"}, "echo"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
async def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError, match=param) as caught:
        await complete(FakeCore(), **fields)

    assert caught.value.param == param


async def test_one_prompt_that_is_too_long_submits_none() -> None:
    core = FakeCore()
    with pytest.raises(PromptTooLongError):
        await complete(core, ["a", "x" * 1024])

    assert core.prompts == []


async def test_one_prompt_that_fails_ends_the_others() -> None:
    core = FakeCore(["abc"], failures={1: "impossible"}, hand_stepped=True)
    core.allow(1)
    with pytest.raises(RequestFailedError, match="impossible"):
        await complete(core, ["a", "b"])

    assert core.cancelled == [2]


async def test_leaving_a_stream_early_cancels_every_prompt() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        chunks = await engine.completions.create(prompt=["a", "b"], stream=True)
        core.allow(1)
        async with chunks:
            await chunks.__anext__()

        assert core.cancelled == [1, 2]
        with pytest.raises(StopAsyncIteration):
            await chunks.__anext__()


async def test_an_id_of_several_prompts_is_an_id_for_each() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        chunks = await engine.completions.create(prompt=["a", "b"], stream=True, request_id="r")
        with pytest.raises(DuplicateRequestError):
            await engine.completions.create(prompt=["c", "d"], request_id="r")

        await engine.abort("r-0")
        with pytest.raises(RequestAbortedError):
            await chunks.__anext__()

        assert repr(chunks) == "<CompletionStream 'r' of 2 prompts>"

    assert core.cancelled[-1] == 2


async def test_death_reaches_the_reader() -> None:
    with pytest.raises(EngineDeadError):
        await complete(FakeCore(["abc"], dies_at_step=2), "a")


@pytest.mark.parametrize("prompt", ["Once", ["Once", "Twice"]])
def test_the_blocking_engine_completes_too(prompt: Any) -> None:  # noqa: ANN401
    with MLCEngine(loader=fake_loader(replies=["abc"])) as engine:
        whole = engine.completions.create(prompt=prompt)
        streamed = engine.completions.create(prompt=prompt, stream=True)
        text = "".join(chunk.choices[0].text for chunk in streamed)

    assert {choice.text for choice in whole.choices} == {"abc"}
    assert text == "abc" * len(whole.choices)
