"""The prompt and the options that a chat request gives to the core."""

from __future__ import annotations

import dataclasses

import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.errors import BadRequestError, PromptTooLongError
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.sampling_params import SamplingParams, SequenceOptions
from aiomlc.testing import FakeCore, fake_model
from tests.unit.api.chat.serving import HELLO, serve

pytestmark = pytest.mark.timeout(20)


async def test_max_tokens_ends_with_length() -> None:
    core = FakeCore(["Hello!"])

    async with serve(core) as engine:
        completion = await engine.chat.completions.create(messages=HELLO, max_tokens=2)
        renamed = await engine.chat.completions.create(messages=HELLO, max_completion_tokens=3)

    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == (
        "He",
        "length",
    )
    assert renamed.choices[0].message.content == "Hel"


async def test_the_core_receives_the_rendered_prompt_and_every_option() -> None:
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


async def test_unset_options_default_to_those_of_the_model() -> None:
    core = FakeCore()

    async def load(model: object, **_: object) -> LoadedModel:
        return dataclasses.replace(
            fake_model(core),
            default_options=SamplingParams(
                temperature=0.3,
                top_p=0.8,
                top_k=9,
                min_p=0.1,
                presence_penalty=0.5,
                frequency_penalty=-0.5,
                repetition_penalty=1.5,
            ),
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
    assert core.options[1] == dataclasses.replace(options, ignore_eos=True, stop_token_ids=())


async def test_a_request_can_add_stop_tokens_or_ignore_those_of_the_model() -> None:
    core = FakeCore()

    async def load(model: object, **_: object) -> LoadedModel:
        return dataclasses.replace(fake_model(core), stop_token_ids=(5, 6))

    async with AsyncMLCEngine(loader=load) as engine:
        create = engine.chat.completions.create
        await create(messages=HELLO, stop_token_ids=[7])
        await create(messages=HELLO, ignore_eos=True)

    assert [options.stop_token_ids for options in core.options] == [(5, 6, 7), ()]


async def test_a_response_message_can_be_sent_back_as_history() -> None:
    core = FakeCore(["Hi!"])

    async with serve(core) as engine:
        completion = await engine.chat.completions.create(messages=HELLO)
        await engine.chat.completions.create(
            messages=[*HELLO, completion.choices[0].message, {"role": "user", "content": "Again"}]
        )
        prompt = fake_model(core).tokenizer.decode(core.prompts[1])

    assert "<|im_start|>assistant\nHi!<|im_end|>" in prompt


async def test_a_prompt_longer_than_the_context_window_is_rejected_with_both_lengths() -> None:
    core = FakeCore()

    async with serve(core) as engine:
        with pytest.raises(PromptTooLongError) as caught:
            await engine.chat.completions.create(messages=[{"role": "user", "content": "x" * 1024}])

    assert (caught.value.prompt_tokens, caught.value.context_window) == (1074, 1024)
    assert core.prompts == []


async def test_a_prompt_long_enough_for_the_worker_thread_is_rejected() -> None:
    async with serve(FakeCore()) as engine:
        with pytest.raises(PromptTooLongError):
            await engine.chat.completions.create(
                messages=[{"role": "user", "content": "x" * 30_000}]
            )


async def test_a_model_without_a_chat_template_rejects_chat_requests() -> None:
    async def load(model: object, **_: object) -> LoadedModel:
        return dataclasses.replace(fake_model(FakeCore()), chat_template=None)

    async with AsyncMLCEngine(loader=load) as engine:
        with pytest.raises(BadRequestError, match="no chat template"):
            await engine.chat.completions.create(messages=HELLO)
