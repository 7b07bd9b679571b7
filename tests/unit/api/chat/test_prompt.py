"""The request fields that are passed to the chat template."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from aiomlc.api.chat.prompt import render_prompt
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.errors import BadRequestError, UnsupportedFieldError
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore, fake_model

USER = {"role": "user", "content": "Hello"}
THINKING_TEMPLATE = "{{ enable_thinking }} {{ style }} {{ messages[0].content }}"
EFFORT_TEMPLATE = "{{ reasoning_effort }} {{ messages[0].content }}"


def render(source: str | None = None, **fields: Any) -> str:  # noqa: ANN401
    model = fake_model(FakeCore())
    if source is not None:
        model = dataclasses.replace(model, chat_template=ChatTemplate(source))

    return render_prompt(parse_chat_request({"messages": [USER], **fields}), model)


def test_the_prompt_ends_with_the_generation_prompt_unless_disabled() -> None:
    assert render().endswith("<|im_start|>assistant\n")
    assert render(add_generation_prompt=False).endswith("Hello<|im_end|>\n")


def test_the_final_message_can_be_continued() -> None:
    prefill = {"role": "assistant", "content": "The answer is "}

    prompt = render(messages=[USER, prefill], continue_final_message=True)

    assert prompt.endswith("<|im_start|>assistant\nThe answer is ")


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [USER]},
        {"messages": [USER, {"role": "assistant", "content": ""}]},
        {
            "messages": [USER, {"role": "assistant", "content": "x"}],
            "add_generation_prompt": True,
        },
    ],
)
def test_only_an_assistant_message_with_text_can_be_continued(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError) as caught:
        render(continue_final_message=True, **fields)

    assert caught.value.param == "continue_final_message"


def test_chat_template_kwargs_are_passed_to_the_template() -> None:
    kwargs = {"enable_thinking": False, "style": ["a"]}

    assert render(THINKING_TEMPLATE, chat_template_kwargs=kwargs) == "False ['a'] Hello"


@pytest.mark.parametrize("name", ["messages", "tools", "self", "unknown"])
def test_a_variable_that_the_template_does_not_use_is_rejected(name: str) -> None:
    with pytest.raises(BadRequestError, match=name) as caught:
        render(THINKING_TEMPLATE, chat_template_kwargs={name: 1})

    assert caught.value.param == "chat_template_kwargs"


def test_has_variable_finds_only_undeclared_names_of_the_template() -> None:
    source = (
        "{% set mine = 1 %}{% generation %}{{ inner }}{% endgeneration %}"
        "{% if style is not defined %}{% set style = 2 %}{% endif %}{{ style }} {{ messages }}"
    )
    template = ChatTemplate(source)

    assert all(template.has_variable(name) for name in ("style", "inner"))
    for name in ("e", "mine", "set", "generation", "namespace", "raise_exception"):
        assert not template.has_variable(name), name


def test_the_reasoning_effort_is_passed_under_the_name_that_the_template_uses() -> None:
    assert render(EFFORT_TEMPLATE, reasoning_effort="low") == "low Hello"
    assert render(THINKING_TEMPLATE, reasoning_effort="none").startswith("False")
    assert render(THINKING_TEMPLATE, reasoning_effort="high").startswith("True")
    kwargs = {"enable_thinking": 1}
    assert render(THINKING_TEMPLATE, reasoning_effort="none", chat_template_kwargs=kwargs)[0] == "1"


def test_a_reasoning_effort_that_the_template_does_not_use_is_rejected() -> None:
    with pytest.raises(UnsupportedFieldError) as caught:
        render(reasoning_effort="low")

    assert caught.value.param == "reasoning_effort"


@pytest.mark.parametrize(
    ("fields", "opposite"),
    [
        ({"reasoning_effort": "none"}, {"reasoning_effort": "high"}),
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            {"chat_template_kwargs": {"enable_thinking": True}},
        ),
        (
            {"chat_template_kwargs": {"thinking": False}},
            {"chat_template_kwargs": {"thinking": 0}},
        ),
    ],
)
def test_a_model_that_does_not_reason_accepts_the_wish_that_it_should_not(
    fields: dict[str, Any], opposite: dict[str, Any]
) -> None:
    assert render(**fields) == render()
    with pytest.raises(UnsupportedFieldError):
        render(**opposite)

    reasoning = dataclasses.replace(
        fake_model(FakeCore()), reasoning_format=ReasoningFormat("<think>", "</think>")
    )
    with pytest.raises(UnsupportedFieldError):
        render_prompt(parse_chat_request({"messages": [USER], **fields}), reasoning)
