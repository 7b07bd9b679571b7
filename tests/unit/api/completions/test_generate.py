"""`generate`: streams of token deltas."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, BadRequestError, MLCEngine, PromptTooLongError
from aiomlc.testing import FakeCore, fake_loader


async def test_deltas_have_text_and_token_ids() -> None:
    core = FakeCore(["Hello you"])
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        await engine.generate("Say hello", max_tokens=50, temperature=0.5, seed=3) as stream,
    ):
        deltas = [delta async for delta in stream]

    assert "".join(delta.text for delta in deltas) == "Hello you"
    token_ids = [token_id for delta in deltas for token_id in delta.token_ids]
    assert len(token_ids) == deltas[-1].completion_tokens > 0
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish_reason == "stop"
    (options,) = core.options
    assert (options.max_tokens, options.temperature, options.seed) == (50, 0.5, 3)


async def test_a_prompt_may_be_token_ids_and_the_stream_has_the_request_id() -> None:
    core = FakeCore(["Hi"])
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        stream = await engine.generate([1, 2, 3], request_id="mine")
        assert stream.request_id == "mine"
        assert "mine" in repr(stream)
        await stream.aclose()

    assert core.prompts == [[1, 2, 3]]


async def test_leaving_the_scope_early_cancels_the_request() -> None:
    core = FakeCore(["a long answer that nobody reads to its end"], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        async with await engine.generate("Go on") as stream:
            core.step()
            delta = await stream.__anext__()

        assert delta.finish_reason is None
        assert len(core.cancelled) == 1


@pytest.mark.parametrize("prompt", [["one", "two"], [[1], [2]], [], "", [-1], [2**70], 3, None])
async def test_only_a_single_non_empty_prompt_is_accepted(prompt: Any) -> None:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        with pytest.raises(BadRequestError) as caught:
            await engine.generate(prompt)

    assert caught.value.param == "prompt"


async def test_a_token_id_outside_of_the_vocabulary_is_named() -> None:
    message = r"^prompt: token ids must be in \[0, 256\), got 256$"
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        with pytest.raises(BadRequestError, match=message):
            await engine.generate([1, 256, 2])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"),
        ({"extra_body": {"echo": True, "suffix": "x"}}, "echo"),
        ({"extra_body": {"suffix": "x"}}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"stream": False}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"messages": []}, "messages"),
        ({"extra_body": {"prompt": ["a", "b"]}}, "prompt"),
        ({"n": 0}, "n"),
        ({"logprobs": True}, "logprobs"),
    ],
)
async def test_unsupported_and_invalid_fields_are_rejected(
    fields: dict[str, Any], param: str
) -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        with pytest.raises(BadRequestError, match=param) as caught:
            await engine.generate("Hi", **fields)

    assert caught.value.param == param


async def test_deltas_have_log_probabilities_for_several_choices() -> None:
    async with (
        AsyncMLCEngine(loader=fake_loader(FakeCore(["ab"]))) as engine,
        await engine.generate("Hi", n=2, logprobs=1) as stream,
    ):
        deltas = [delta async for delta in stream]

    assert {delta.choice for delta in deltas} == {0, 1}
    assert all(len(delta.logprobs) == len(delta.token_ids) for delta in deltas)


async def test_a_prompt_without_room_for_a_completion_is_rejected() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        with pytest.raises(PromptTooLongError):
            await engine.generate([1] * engine.max_input_sequence_length)


def test_the_blocking_engine_yields_the_same_text() -> None:
    with MLCEngine(loader=fake_loader(FakeCore(["Hello you"]))) as engine:
        text = "".join(delta.text for delta in engine.generate("Say hello"))
        again = engine.tokenizer.decode(engine.tokenizer.encode("Hello you"))

    assert text == again == "Hello you"
