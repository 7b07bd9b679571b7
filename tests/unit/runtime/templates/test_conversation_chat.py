"""Chat requests to models with a conversation template."""

from __future__ import annotations

import dataclasses

import pytest

from aiomlc import AsyncMLCEngine, BadRequestError, EngineClosedError, MLCEngine
from aiomlc.api.chat.prompt import render_prompt, with_template_stops
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.reasoning_format import find_reasoning_format
from aiomlc.runtime.templates.prompt_template import PromptTemplate
from aiomlc.runtime.templates.registry import get_conversation_template
from aiomlc.testing import FakeCore, fake_loader, fake_model
from tests.unit.runtime.templates.conversation_cases import (
    CHAT,
    CHATML_PROMPT,
    SYSTEM,
    make_conversation,
)


def model_of(template: PromptTemplate) -> LoadedModel:
    return dataclasses.replace(fake_model(FakeCore()), chat_template=template)


def test_variables_and_reasoning_effort_are_rejected_by_name() -> None:
    for param, value in {"chat_template_kwargs": {"user": 1}, "reasoning_effort": "low"}.items():
        request = parse_chat_request({"messages": list(CHAT), param: value})
        with pytest.raises(BadRequestError) as caught:
            render_prompt(request, model_of(make_conversation()))

        assert caught.value.param == param


def test_the_stops_of_the_template_end_a_chat_unless_eos_is_ignored() -> None:
    model = dataclasses.replace(
        model_of(make_conversation(stop_str=["User:"])), chat_stop_token_ids=(7,)
    )
    request = parse_chat_request({"messages": list(CHAT), "stop": "x", "stop_token_ids": [5]})
    ignoring_eos = request.model_copy(update={"ignore_eos": True})

    stopping = with_template_stops(request, model)

    assert (stopping.stop, stopping.stop_token_ids) == (("x", "User:"), (5, 7))
    assert with_template_stops(ignoring_eos, model) is ignoring_eos
    assert with_template_stops(request, fake_model(FakeCore())) is request


async def test_only_chats_get_the_token_prefix_and_the_stops_of_the_template() -> None:
    core = FakeCore()
    template = make_conversation(system_prefix_token_ids=[1, 2], stop_str=["User:"])

    async def load(model: object, **_: object) -> LoadedModel:
        return dataclasses.replace(
            fake_model(core), chat_template=template, chat_stop_token_ids=(7,)
        )

    engine = AsyncMLCEngine(loader=load)
    with pytest.raises(EngineClosedError):
        _ = engine.conv_template

    async with engine:
        assert engine.conv_template is template
        await engine.chat.completions.create(messages=[SYSTEM, *CHAT])
        await engine.completions.create(prompt="Hi")

    assert core.prompts == [[1, 2, *CHATML_PROMPT.encode()], list(b"Hi")]
    assert [(options.stop, options.stop_token_ids) for options in core.options] == [
        (("User:",), (7,)),
        ((), ()),
    ]


def test_an_engine_with_a_jinja_template_has_no_conversation_template() -> None:
    with MLCEngine(loader=fake_loader()) as engine:
        assert engine.conv_template is None


async def test_reasoning_that_the_template_starts_is_separated() -> None:
    template = get_conversation_template("deepseek_r1_qwen")

    async def load(model: object, **_: object) -> LoadedModel:
        return dataclasses.replace(
            fake_model(FakeCore(["Hm.</think>Hello."])),
            chat_template=template,
            reasoning_format=find_reasoning_format(template.source),
        )

    async with AsyncMLCEngine(loader=load) as engine:
        answer = await engine.chat.completions.create(messages=CHAT)

    message = answer.choices[0].message
    assert (message.reasoning_content, message.content) == ("Hm.", "Hello.")


async def test_a_pinned_chat_has_the_token_prefix_of_the_template() -> None:
    core = FakeCore()
    template = make_conversation(system_prefix_token_ids=[1, 2])

    async def load(model: object, **_: object) -> LoadedModel:
        return dataclasses.replace(fake_model(core), chat_template=template)

    async with AsyncMLCEngine(loader=load) as engine:
        await engine.pin_prefix([SYSTEM])
        await engine.chat.completions.create(messages=[SYSTEM, *CHAT])

    pinned, prompt = core.prompts
    assert pinned[:2] == [1, 2]
    assert prompt[: len(pinned)] == pinned
