"""Every template gets the messages of a chat in a form that it reads, or the chat is rejected."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from typing import Any

import pytest

from aiomlc.api.chat.prompt import render_prompt
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.errors import BadRequestError
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore, fake_model

Json = dict[str, Any]

USER = {"role": "user", "content": "Hello"}
PARTS = [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]
PART = {"type": "text", "text": "I see."}
# How a template reads the content of a message, and the arguments of a call.
CONTENTS = {
    "concatenated": "{{ '<' + m.role + '>' + m.content }}",
    "printed": "<{{ m.role }}>{{ m.content }}",
    "trimmed": "<{{ m.role }}>{{ m.content | trim }}",
    "split": "<{{ m.role }}>{{ m.content.split('</think>')[-1] }}",
    "tested": "<{{ m.role }}>{% if m.content is not none %}{{ m.content + '' }}{% endif %}",
    "parts": "<{{ m.role }}>{% for p in m.content %}[{{ p.text }}]{% endfor %}",
    "either": "<{{ m.role }}>{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for p in m.content or [] %}{{ p['text'] }}{% endfor %}{% endif %}",
    "user parts": "<{{ m.role }}>{% if m.role == 'user' %}{% for p in m.content %}{{ p.text }}"
    "{% endfor %}{% else %}{{ '' + m.content }}{% endif %}",
}
ARGUMENTS = {
    "json": "{{ c.function.arguments | tojson }}",
    "concatenated": "{{ '' + c.function.arguments }}",
    "printed": "{{ c.function.arguments }}",
    "items": "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}",
}


def template(content: str, arguments: str = "json") -> str:
    calls = f"{{% for c in m.tool_calls or [] %}}{{{{ c.function.name }}}}{ARGUMENTS[arguments]}"
    return f"{{% for m in messages %}}{CONTENTS[content]}{calls}{{% endfor %}}|{{% endfor %}}"


def render(source: str, *messages: Json) -> str:
    model = dataclasses.replace(fake_model(FakeCore()), chat_template=ChatTemplate(source))
    return render_prompt(parse_chat_request({"messages": list(messages)}), model)


def call(arguments: str) -> Json:
    return {"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}


@pytest.mark.parametrize("source", [template(name) for name in CONTENTS], ids=list(CONTENTS))
@pytest.mark.parametrize(
    ("content", "texts"),
    [("Hello", ["Hello"]), (PARTS, ["first", "second"])],
    ids=["text", "parts"],
)
@pytest.mark.parametrize("assistant", [None, "", "I see.", [PART]], ids=str)
def test_every_text_of_a_chat_is_in_the_prompt(
    source: str, content: object, texts: list[str], assistant: object
) -> None:
    answer: Json = {"role": "assistant", "content": assistant, "tool_calls": [call('{"a": "b"}')]}
    result = {"role": "tool", "tool_call_id": "c", "content": "a result"}
    system = {"role": "system", "content": "Be kind."}

    prompt = render(source, system, {"role": "user", "content": content}, answer, result)

    first, user, model, tool, _ = prompt.split("|")
    assert "Be kind." in first
    assert all(text in user for text in texts)
    assert "look" in model
    assert not assistant or "I see." in model
    assert "a result" in tool
    assert "None" not in prompt
    assert "'type'" not in prompt


@pytest.mark.parametrize(("content", "arguments"), list(itertools.product(CONTENTS, ARGUMENTS)))
@pytest.mark.parametrize("text", ['{"city": "Oslo", "n": 1}', "{}", "", "null"])
def test_the_arguments_of_calls_are_never_written_as_python(
    content: str, arguments: str, text: str
) -> None:
    answer: Json = {"role": "assistant", "content": None, "tool_calls": [call(text)]}

    prompt = render(template(content, arguments), USER, answer)

    values = json.loads(text or "{}") or {}
    written = prompt.rpartition("look")[2].removesuffix("|")
    if arguments == "items":
        assert written == "".join(f"{key}={value}" for key, value in values.items())
    else:
        assert json.loads(written) == values


def test_parts_reach_a_template_as_they_are() -> None:
    source = "{% for p in messages[0].content %}{{ p.type }}:{{ p.text }};{% endfor %}"

    assert render(source, {"role": "user", "content": PARTS}) == "text:first;text:second;"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("name", ["reasoning_content", "thinking"])
def test_templates_get_the_reasoning_under_both_names(field: str, name: str) -> None:
    source = f"{{{{ messages[0].content }}}}{{{{ messages[1].{name} }}}}"
    answer: Json = {"role": "assistant", "content": None, "tool_calls": [call("{}")]}

    assert render(source, USER, {**answer, field: "I need it."}) == "HelloI need it."


def test_an_empty_content_stays_null_for_a_template_that_asks() -> None:
    source = "{{ messages[0].content }} {{ messages[1].content is none }}"

    answer: Json = {"role": "assistant", "content": None, "refusal": "No."}
    assert render(source, USER, answer) == "Hello True"


@pytest.mark.parametrize(
    "source",
    ["fixed", "{% for p in messages[-1].contents %}{{ p }}{% endfor %}", "{{ messages | length }}"],
)
@pytest.mark.parametrize("content", ["Hello", PARTS], ids=["text", "parts"])
def test_a_template_that_leaves_out_the_last_question_is_an_error(
    source: str, content: object
) -> None:
    with pytest.raises(BadRequestError, match=r"leaves out the text of messages\[1\]") as caught:
        render(source, {"role": "system", "content": "x"}, {"role": "user", "content": content})

    assert caught.value.param == "messages[1].content"


@pytest.mark.parametrize("change", ["upper", "replace('l', '')", "tojson", "length", "e"])
def test_a_template_may_rewrite_a_question(change: str) -> None:
    message = {"role": "user", "content": ' "Hello"\n <world> '}
    source = f"{{{{ messages[0].content | {change} }}}}"

    if change == "length":
        with pytest.raises(BadRequestError, match="leaves out"):
            render(source, message)
    else:
        assert render(source, message)


def test_an_empty_question_is_not_left_out() -> None:
    assert render("fixed", {"role": "user", "content": " \n"}) == "fixed"


def test_a_template_that_leaves_out_an_earlier_question_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = {"role": "assistant", "content": "Yes."}
    with caplog.at_level(logging.WARNING, "aiomlc"):
        prompt = render("{{ messages[-1].content }}", USER, answer, {**USER, "content": "And?"})

    assert prompt == "And?"
    assert [record.getMessage() for record in caplog.records] == [
        "the model's chat template leaves out the text of messages[0]"
    ]


def test_a_final_message_in_parts_is_continued() -> None:
    source = "{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}"
    model = dataclasses.replace(fake_model(FakeCore()), chat_template=ChatTemplate(source))
    messages = [USER, {"role": "assistant", "content": PARTS}]
    request = parse_chat_request({"messages": messages, "continue_final_message": True})

    assert render_prompt(request, model) == "Hello;first;second"
