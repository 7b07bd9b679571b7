"""Chat completions: their shape on the wire and their way through the engine."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio import create_task_group, wait_all_tasks_blocked

from aiomlc import AsyncMLCEngine, ChatCompletionChunk
from aiomlc.api.chat.aggregate import aggregate
from aiomlc.errors import (
    BadRequestError,
    DuplicateRequestError,
    PromptTooLongError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.sampling_params import SamplingDefaults, SequenceOptions
from aiomlc.testing import FakeCore, fake_loader, fake_model

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]


@asynccontextmanager
async def serve(core: FakeCore) -> AsyncIterator[AsyncMLCEngine]:
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        yield engine


@pytest.mark.parametrize("options", [None, {"include_usage": True}])
async def test_every_chunk_is_what_validation_would_give(options: dict[str, bool] | None) -> None:
    async with serve(FakeCore(["Hi!"])) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, stream_options=options
        )
        chunks = [chunk async for chunk in stream]

    for chunk in chunks:
        validated = ChatCompletionChunk.model_validate(chunk.model_dump())
        assert chunk == validated
        assert chunk.model_dump_json() == validated.model_dump_json()
        assert chunk.model_fields_set == validated.model_fields_set - {
            "object",
            "system_fingerprint",
        }
        assert repr(chunk.model_copy(deep=True)) == repr(validated)


async def test_a_completion_has_openais_shape() -> None:
    async with serve(FakeCore(["Hi!"])) as engine:
        answer = await engine.chat.completions.create(
            messages=HELLO, model="mine", request_id="chatcmpl-1"
        )

    assert answer.model_dump() == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": answer.created,
        "model": "mine",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi!", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 55,
            "completion_tokens": 3,
            "total_tokens": 58,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "system_fingerprint": None,
    }


async def test_a_stream_has_openais_shape() -> None:
    core = FakeCore(["Hi"], hand_stepped=True)

    async with serve(core) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, request_id="chatcmpl-1"
        )
        chunks = []
        core.allow(1)
        async with stream:
            async for chunk in stream:
                chunks.append(chunk.model_dump())
                if chunk.choices[0].delta.content:
                    core.allow(1)

    common = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": chunks[0]["created"],
        "model": "fake",
        "system_fingerprint": None,
    }
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "H"}, None),
        ({"content": "i"}, None),
        ({}, "stop"),
    ]
    assert chunks == [
        common
        | {
            "choices": [
                {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
            ]
        }
        for delta, finish_reason in deltas
    ]


async def test_include_usage_ends_the_stream_with_the_counts_and_no_choice() -> None:
    async with serve(FakeCore(["Hi!"])) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk.model_dump() async for chunk in stream]

    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 55,
        "completion_tokens": 3,
        "total_tokens": 58,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_the_whole_answer_is_the_sum_of_the_stream() -> None:
    async with serve(FakeCore(["The same answer"])) as engine:
        options: dict[str, Any] = {"messages": HELLO, "request_id": "one"}
        whole = await engine.chat.completions.create(**options)
        stream = await engine.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
        summed = await aggregate(stream)

    assert summed.model_copy(update={"created": whole.created}) == whole


async def test_max_tokens_ends_with_length() -> None:
    core = FakeCore(["Hello!"])

    async with serve(core) as engine:
        answer = await engine.chat.completions.create(messages=HELLO, max_tokens=2)
        other = await engine.chat.completions.create(messages=HELLO, max_completion_tokens=3)

    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("He", "length")
    assert other.choices[0].message.content == "Hel"


async def test_the_core_gets_the_rendered_prompt_and_every_option() -> None:
    core = FakeCore()

    async with serve(core) as engine:
        await engine.chat.completions.create(
            messages=HELLO,
            temperature=0,
            top_p=0.5,
            top_k=3,
            min_p=0.25,
            presence_penalty=-1,
            frequency_penalty=0.5,
            repetition_penalty=1.25,
            logit_bias={"65": 3, "66": -100},
            logprobs=True,
            top_logprobs=4,
            min_tokens=2,
            max_tokens=7,
            stop=["a", "b"],
            seed=11,
        )
        tokenizer = fake_model(core).tokenizer

    options = core.options[0]
    assert tokenizer.decode(core.prompts[0]) == (
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (options.temperature, options.top_p, options.top_k, options.min_p) == (0, 0.5, 3, 0.25)
    assert (options.presence_penalty, options.frequency_penalty) == (-1, 0.5)
    assert (options.repetition_penalty, options.top_logprobs) == (1.25, 4)
    assert options.logit_bias == ((65, 3.0), (66, -100.0))
    assert (options.min_tokens, options.max_tokens) == (2, 7)
    assert (options.stop, options.seed) == (("a", "b"), 11)


async def test_a_request_that_says_nothing_gets_the_models_defaults() -> None:
    core = FakeCore()

    async def load(model: object, **_: object) -> LoadedModel:
        return dataclasses.replace(
            fake_model(core),
            default_options=SamplingDefaults(0.3, 0.8, 9, 0.1, 0.5, -0.5, 1.5),
            stop_token_ids=(5, 6),
        )

    async with AsyncMLCEngine(loader=load) as engine:
        await engine.chat.completions.create(messages=HELLO)
        await engine.chat.completions.create(messages=HELLO, ignore_eos=True)

    options = core.options[0]
    assert options == SequenceOptions(
        temperature=0.3,
        top_p=0.8,
        top_k=9,
        min_p=0.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.5,
        stop_token_ids=(5, 6),
    )
    assert core.options[1] == dataclasses.replace(options, stop_token_ids=())


async def test_a_top_p_of_none_of_them_is_that_of_the_likeliest() -> None:
    core = FakeCore()
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        await engine.chat.completions.create(messages=HELLO, top_p=0)

    assert 0 < core.options[0].top_p < 1e-6


async def test_a_request_may_add_tokens_that_end_it_and_take_the_models_away() -> None:
    core = FakeCore()

    async def load(model: object, **_: object) -> LoadedModel:
        return dataclasses.replace(fake_model(core), stop_token_ids=(5, 6))

    async with AsyncMLCEngine(loader=load) as engine:
        create = engine.chat.completions.create
        await create(messages=HELLO, stop_token_ids=[7])
        await create(messages=HELLO, ignore_eos=True)

    assert [options.stop_token_ids for options in core.options] == [(5, 6, 7), ()]


async def test_an_answers_message_goes_back_as_history() -> None:
    core = FakeCore(["Hi!"])

    async with serve(core) as engine:
        answer = await engine.chat.completions.create(messages=HELLO)
        await engine.chat.completions.create(
            messages=[*HELLO, answer.choices[0].message, {"role": "user", "content": "Again"}]
        )
        prompt = fake_model(core).tokenizer.decode(core.prompts[1])

    assert "<|im_start|>assistant\nHi!<|im_end|>" in prompt


async def test_leaving_a_stream_early_cancels_its_request() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    async with serve(core) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        core.allow(1)
        async for _ in stream:
            break

        await stream.aclose()
        await stream.aclose()

        assert core.cancelled == [1]
        with pytest.raises(StopAsyncIteration):
            await stream.__anext__()


async def test_cancelling_a_whole_answer_cancels_its_request() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    async with serve(core) as engine, create_task_group() as tasks:

        async def ask() -> None:
            await engine.chat.completions.create(messages=HELLO)

        tasks.start_soon(ask)
        while not core.prompts:
            await wait_all_tasks_blocked()

        tasks.cancel_scope.cancel()

    assert core.cancelled == [1]


async def test_a_cancelled_create_submits_nothing() -> None:
    core = FakeCore()

    async with serve(core) as engine, create_task_group() as tasks:
        tasks.cancel_scope.cancel()
        await engine.chat.completions.create(messages=HELLO)

    assert core.prompts == []


async def test_abort_ends_the_request_with_that_id() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    async with serve(core) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, request_id="mine"
        )
        await engine.abort("nobody")
        await engine.abort("mine")

        with pytest.raises(RequestAbortedError):
            await stream.__anext__()


async def test_a_second_live_request_with_one_id_is_refused() -> None:
    core = FakeCore(["first"], hand_stepped=True)

    async with serve(core) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, request_id="same"
        )
        with pytest.raises(DuplicateRequestError):
            await engine.chat.completions.create(messages=HELLO, request_id="same")

        core.allow(100)
        answer = await aggregate(stream)

    assert answer.choices[0].message.content == "first"


async def test_a_request_that_fails_in_the_core_raises_its_reason() -> None:
    async with serve(FakeCore(failures={1: "impossible"})) as engine:
        with pytest.raises(RequestFailedError, match="impossible"):
            await engine.chat.completions.create(messages=HELLO)


async def test_a_prompt_as_long_as_the_context_window_is_refused_with_both_counts() -> None:
    core = FakeCore()

    async with serve(core) as engine:
        with pytest.raises(PromptTooLongError) as caught:
            await engine.chat.completions.create(messages=[{"role": "user", "content": "x" * 1024}])

    assert (caught.value.prompt_tokens, caught.value.context_window) == (1074, 1024)
    assert core.prompts == []


async def test_a_very_long_prompt_is_encoded_off_the_loop_and_refused() -> None:
    async with serve(FakeCore()) as engine:
        with pytest.raises(PromptTooLongError):
            await engine.chat.completions.create(
                messages=[{"role": "user", "content": "x" * 30_000}]
            )


async def test_a_model_without_a_template_refuses_to_chat() -> None:
    async def load(model: object, **_: object) -> LoadedModel:
        return dataclasses.replace(fake_model(FakeCore()), chat_template=None)

    async with AsyncMLCEngine(loader=load) as engine:
        with pytest.raises(BadRequestError, match="no chat template"):
            await engine.chat.completions.create(messages=HELLO)


async def test_a_sum_of_nothing_is_an_error() -> None:
    async def nothing() -> AsyncIterator[ChatCompletionChunk]:
        empty: tuple[ChatCompletionChunk, ...] = ()
        for chunk in empty:
            yield chunk

    with pytest.raises(RequestFailedError):
        await aggregate(nothing())


async def test_a_batch_holds_every_chunk_that_is_there() -> None:
    core = FakeCore(["Hi"])

    async with serve(core) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        batches = []
        while batch := await stream.receive_batch():
            batches.append(batch)

    assert [chunk.usage is None for chunk in batches[-1]][-2:] == [True, False]
    assert await stream.receive_batch() == []


async def test_a_stream_names_its_request() -> None:
    async with serve(FakeCore(hand_stepped=True)) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True, request_id="r")
        stream.close()

    assert stream.request_id == "r"
    assert repr(stream) == "<ChatCompletionStream of <DeltaStream 'r' ended>>"


async def test_a_chunk_without_text_adds_nothing_to_texts_and_has_no_such_field() -> None:
    async with AsyncMLCEngine(loader=fake_loader(replies=["Hi"])) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        chunks = [chunk async for chunk in stream]

    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices]
    assert "".join(text or "absent" for text in texts[1:-1]) == "Hi"
    assert (texts[0], texts[-1]) == ("", "")
    last = chunks[-1].choices[0]
    assert last.model_dump() == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }
    again = type(last).model_validate(last.model_dump())
    assert again.delta.content == ""
    assert pickle.loads(pickle.dumps(last)).model_dump() == last.model_dump()
