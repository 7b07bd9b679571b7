"""The format of tool calls is the one in which the chat template writes a call."""

# ruff: noqa: RUF001 - DeepSeek's markers contain characters that look like ASCII.

from __future__ import annotations

import itertools

import pytest

from aiomlc.runtime.output_formats.tool_format import TOOL_FORMATS, find_tool_format
from aiomlc.runtime.templates.call_format import find_call_format
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.jinja_template import ChatTemplate

_TAGS = (
    "<function={{ f.name }}>\n{% for k, v in f.arguments | items %}<parameter={{ k }}>PAD{{ v }}"
    "PAD</parameter>\n{% endfor %}</function>"
)
_PYTHON = (
    "{{ f.name }}({% for k, v in f.arguments | items %}{{ k }}={{ v | tojson }}"
    "{{ ', ' if not loop.last }}{% endfor %})"
)
#: What is written for one call `f` of a message, by the name of its format.
CALLS = {
    "hermes": "<tool_call>\n{{ f | tojson }}\n</tool_call>",
    "qwen3_coder": f"<tool_call>\n{_TAGS}\n</tool_call>".replace("PAD", "\n"),
    "seed_oss": f"<seed:tool_call>\n{_TAGS}\n</seed:tool_call>".replace("PAD", ""),
    "glm4": "<tool_call>{{ f.name }}\n{% for k, v in f.arguments | items %}<arg_key>{{ k }}"
    "</arg_key>\n<arg_value>{{ v }}</arg_value>\n{% endfor %}</tool_call>",
    "granite": "<|tool_call|>[{{ f | tojson }}]",
    "command_r": '\nAction:\n```json\n[\n    {\n        "tool_name": "{{ f.name }}",\n        '
    '"parameters": {{ f.arguments | tojson(indent=4) | indent(8) }}\n    }\n]```\n',
    "mistral": "[TOOL_CALLS] [{{ dict(f, id='probecall') | tojson }}]",
    "mistral_named": "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}",
    "llama3": '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}',
    "lfm2.5": f"<|tool_call_start|>[{_PYTHON}]<|tool_call_end|>",
    "pythonic": f"[{_PYTHON}]",
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ f.name }}\n"
    "```json\n{{ f.arguments | tojson }}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ f.name }}<｜tool▁sep｜>"
    "{{ f.arguments | tojson }}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
}
#: How a template treats the messages around a call.
STYLES = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}CALLS"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "strict": "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}CALLS"
    "{% else %}[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}",
    "with a result": "{% for m in messages %}{% if not loop.last %}<{{ m.role }}>{{ m.content }}"
    "CALLS{% elif m.role != 'assistant' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
    "without tools": "{% if tools %}{{ raise_exception('no') }}{% endif %}{% for m in messages %}"
    "<{{ m.role }}>{{ m.content or '' }}CALLS{% endfor %}",
}
# Instructions that mention the markers of every format.
MARKERS = " ".join(each.start_marker for each in TOOL_FORMATS)


def template(call: str, style: str = "chatml", *, instructions: str = "") -> ChatTemplate:
    loop = "{% for c in m.tool_calls or [] %}{% set f = c.function %}CALL{% endfor %}"
    source = STYLES[style].replace("CALLS", loop.replace("CALL", call, 1))
    return ChatTemplate(f"{{% if tools %}}{instructions}{{% endif %}}{source}")


def found(each: ChatTemplate) -> str | None:
    tool_format = find_call_format(each)
    return None if tool_format is None else tool_format.name


@pytest.mark.parametrize(
    ("name", "style"), list(itertools.product(CALLS, ("chatml", "strict", "with a result")))
)
def test_the_format_is_that_of_the_call_that_the_template_writes(name: str, style: str) -> None:
    marked = next(each for each in TOOL_FORMATS if each.name == name)
    if marked.marker_optional and style != "chatml":
        return  # A call without a marker is found only where a completion begins.

    assert found(template(CALLS[name], style, instructions=MARKERS)) == name


def test_a_call_with_text_as_arguments_is_recognized() -> None:
    call = (
        "<tool_call>\n{{ '{\"name\": \"' + f.name + '\", \"arguments\": ' + f.arguments + '}' }}\n"
    )

    assert found(template(call + "</tool_call>")) == "hermes"


@pytest.mark.parametrize(
    "call",
    [
        "<tool_calls>[{{ f | tojson }}]</tool_calls>",
        "]<]x[>[<tool_call>\n]<]x[>[<invoke name='{{ f.name }}'>{{ f.arguments.text }}",
        "<call>{{ f | tojson }}</call>",
        "{{ f.name }}: {{ f.arguments }}",
    ],
)
def test_a_template_that_writes_another_format_has_none(call: str) -> None:
    source = template(call, instructions="Answer with <tool_call>{}</tool_call>.")

    assert find_tool_format(source.source) is not None
    assert found(source) is None


@pytest.mark.parametrize(
    ("instructions", "name"),
    [
        ("respond only with <|tool_call|> followed by a JSON list of tools used", "granite"),
        ("Answer with <tool_call>.", "hermes"),
        ("Write \\'Action:\\' followed by a json-formatted list of actions", "command_r"),
        ("Call no functions.", None),
    ],
)
@pytest.mark.parametrize("style", ["chatml", "without tools"])
def test_a_template_that_writes_no_call_is_recognized_by_its_instructions(
    instructions: str, name: str | None, style: str
) -> None:
    assert found(template("", style, instructions=instructions)) == name


def test_a_template_that_fails_or_never_ends_is_recognized_by_its_instructions() -> None:
    endless = "{% for i in range(40000) %}{% for j in range(40000) %}{% endfor %}{% endfor %}"
    for source in ("{{ raise_exception('no') }}", endless):
        assert found(ChatTemplate(f"<tool_call>{source}")) == "hermes"


def test_a_conversation_template_has_the_format_of_its_signature() -> None:
    fields = {"roles": {"user": "U", "assistant": "A"}, "seps": ["\n"]}
    conversation = Conversation.from_json_dict({**fields, "system_template": "<tool_call>"})

    assert find_call_format(conversation) == find_tool_format("<tool_call>")
