"""Several choices of one request, which share one stream and one request id."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from anyio import create_task_group, wait_all_tasks_blocked

from aiomlc import (
    DuplicateRequestError,
    EngineClosedError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.stream import DeltaStream
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore
from tests.unit.api.chat.serving import HELLO, serve

pytestmark = pytest.mark.timeout(20)
OPTIONS = SequenceOptions()


async def read_texts(stream: DeltaStream) -> dict[int, str]:
    """Read the stream to its end and return the text of every choice."""
    texts: dict[int, str] = {}
    async for delta in stream:
        texts[delta.choice] = texts.get(delta.choice, "") + delta.text
    return texts


async def test_choices_have_their_own_text_and_end_independently() -> None:
    core = FakeCore(["long answer", "no", "medium"])

    async with EngineClient(core) as engine:
        stream = engine.open_stream(Prompt([1, 2]), OPTIONS, num_choices=3)
        deltas = [delta async for delta in stream]

    ends = [delta.choice for delta in deltas if delta.finish_reason is not None]
    texts = ["".join(d.text for d in deltas if d.choice == choice) for choice in range(3)]
    assert texts == ["long answer", "no", "medium"]
    assert sorted(ends) == [0, 1, 2]
    assert core.cancelled == []
    assert core.prompts == [[1, 2]] * 3


@pytest.mark.parametrize(("seed", "seeds"), [(7, [7, 8, 9]), (None, [None] * 3)])
async def test_the_seeds_of_the_choices_count_up_from_that_of_the_request(
    seed: int | None, seeds: Sequence[int | None]
) -> None:
    core = FakeCore(["a"])

    async with EngineClient(core) as engine:
        await read_texts(engine.open_stream(Prompt([1]), SequenceOptions(seed=seed), num_choices=3))

    assert [options.seed for options in core.options] == seeds


async def test_a_slow_reader_receives_one_merged_delta_per_choice() -> None:
    core = FakeCore(["abc", "xyz"])

    async with EngineClient(core) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS, num_choices=2)
        await read_texts(engine.open_stream(Prompt([1]), OPTIONS))
        await wait_all_tasks_blocked()
        deltas = [delta async for delta in stream]

    assert sorted((delta.choice, delta.text) for delta in deltas) == [(0, "abc"), (1, "xyz")]


async def test_leaving_early_cancels_every_choice() -> None:
    core = FakeCore(["long answer"], hand_stepped=True)

    async with (
        EngineClient(core) as engine,
        engine.open_stream(Prompt([1]), OPTIONS, num_choices=3) as stream,
    ):
        core.allow(1)
        await anext(stream)

    assert core.cancelled == [1, 2, 3]


async def test_a_failed_choice_ends_the_other_choices_of_its_request() -> None:
    core = FakeCore(["a", "b"], failures={2: "bad logits"}, hand_stepped=True)

    async with EngineClient(core) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS, "of_choice", num_choices=3)
        other = engine.open_stream(Prompt([1]), OPTIONS)
        core.allow(1)
        with pytest.raises(RequestFailedError, match="bad logits"):
            await read_texts(stream)
        core.allow(9)
        text = await read_texts(other)
        again = engine.open_stream(Prompt([1]), OPTIONS, "of_choice")
        core.allow(9)
        await read_texts(again)

    assert text == {0: "b"}
    assert core.cancelled == [1, 3]


async def test_abort_ends_all_choices_and_frees_the_request_id() -> None:
    core = FakeCore(["long answer"], hand_stepped=True)

    async with EngineClient(core) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS, "of_choice", num_choices=2)
        with pytest.raises(DuplicateRequestError):
            engine.open_stream(Prompt([1]), OPTIONS, "of_choice")
        engine.abort("of_choice")
        with pytest.raises(RequestAbortedError):
            await read_texts(stream)
        engine.open_stream(Prompt([1]), OPTIONS, "of_choice").close()

    assert core.cancelled == [1, 2, 3]


async def test_the_request_id_is_in_use_until_the_last_choice_has_ended() -> None:
    core = FakeCore(["a", "abcdef"], hand_stepped=True)

    async with EngineClient(core) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS, "of_choice", num_choices=2)
        core.allow(3)
        while (await anext(stream)).finish_reason is None:
            pass
        with pytest.raises(DuplicateRequestError):
            engine.open_stream(Prompt([1]), OPTIONS, "of_choice")
        core.allow(9)
        await read_texts(stream)
        engine.open_stream(Prompt([1]), OPTIONS, "of_choice").close()


async def test_a_rejected_choice_cancels_the_choices_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = FakeCore(["a"], hand_stepped=True)
    submit = core.submit

    def reject_the_third(prompt: Prompt, options: SequenceOptions) -> int:
        if len(core.prompts) == 2:
            raise EngineClosedError("closed meanwhile")
        return submit(prompt, options)

    monkeypatch.setattr(core, "submit", reject_the_third)
    async with EngineClient(core) as engine:
        with pytest.raises(EngineClosedError):
            engine.open_stream(Prompt([1]), OPTIONS, num_choices=3)

    assert core.cancelled == [1, 2]


async def test_a_completion_has_its_choices_in_order_and_counts_the_prompt_once() -> None:
    async with serve(FakeCore(["longer", "ab", "mid"])) as engine:
        completion = await engine.chat.completions.create(messages=HELLO, n=3)

    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert [choice.message.content for choice in completion.choices] == ["longer", "ab", "mid"]
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (55, 11)
    assert completion.usage.total_tokens == 66


async def test_each_streamed_choice_begins_with_the_role_and_ends_with_the_finish_reason() -> None:
    async with serve(FakeCore(["longer", "ab"])) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, n=2, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]

    for index in range(2):
        of_choice = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert [choice.delta.role for choice in of_choice] == ["assistant"] + [None] * (
            len(of_choice) - 1
        )
        reasons = [choice.finish_reason for choice in of_choice]
        assert reasons == [None] * (len(of_choice) - 1) + ["stop"]
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]


async def test_choices_of_concurrent_requests_do_not_mix() -> None:
    replies = [f"reply {number}" for number in range(12)]
    contents: list[list[str | None]] = [[]] * 4

    async with serve(FakeCore(replies)) as engine:

        async def ask(number: int) -> None:
            completion = await engine.chat.completions.create(messages=HELLO, n=3)
            contents[number] = [choice.message.content for choice in completion.choices]

        async with create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(ask, number)

    assert sorted(contents, key=str) == sorted(
        ([f"reply {3 * number + choice}" for choice in range(3)] for number in range(4)), key=str
    )
