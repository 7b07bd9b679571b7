"""Prompts that conversation templates render from messages and tools."""

# ruff: noqa: RUF001 - DeepSeek's markers contain characters that look like ASCII.

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc import BadRequestError
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.templates.registry import get_conversation_template
from tests.unit.runtime.templates.conversation_cases import (
    CALL,
    CHAT,
    CHATML,
    CHATML_PROMPT,
    SYSTEM,
    TOOL,
    make_conversation,
)

TOOL_TEMPLATE = {
    **CHATML,
    "system_template": "<tool_call> {function_string}\n",
    "roles": {**CHATML["roles"], "tool": "<|im_start|>tool"},
}


def test_a_chat_without_a_system_message_gets_the_default_one() -> None:
    template = get_conversation_template("qwen2")

    assert template.render(CHAT[:1]) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template.render([{"role": "system", "content": ""}, CHAT[0]]).startswith(
        "<|im_start|>system\n<|im_end|>\n"
    )


def test_the_prompt_equals_that_of_the_equivalent_jinja_template() -> None:
    jinja = ChatTemplate(
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    for number in range(1, len(CHAT) + 1):
        for add_generation_prompt in (True, False):
            messages = [SYSTEM, *CHAT[:number]]
            prompt, expected = (
                template.render(messages, add_generation_prompt=add_generation_prompt)
                for template in (make_conversation(), jinja)
            )
            assert prompt == expected

    messages = [SYSTEM, *CHAT[:2]]
    assert make_conversation().render(messages, continue_final_message=True) == jinja.render(
        messages, continue_final_message=True, add_generation_prompt=False
    )


def reference_prompt(fields: dict[str, Any], chat: list[tuple[str, str]]) -> str:
    """Return the prompt by MLC LLM's definition, for messages without braces."""
    system = fields["system_template"].replace("{system_message}", fields["system_message"])
    seps = fields["seps"]
    prompt: str = system
    for position, (role, content) in enumerate(chat):
        omit_role = position == 0 and system and not fields["add_role_after_system_message"]
        if not omit_role:
            prompt += fields["roles"][role] + fields["role_content_sep"]
        template = fields["role_templates"][role]
        prompt += template.replace(f"{{{role}_message}}", content)
        prompt += seps[1] if role == "assistant" and len(seps) == 2 else seps[0]

    prompt += fields["roles"]["assistant"] + fields["role_empty_sep"]
    before, placeholder, after = prompt.rpartition("{function_string}")
    functions = fields["function_string"] if placeholder else ""
    return before.replace("{function_string}", "") + functions + after


TEXT = st.text("ab<|>\n ", max_size=3)
ROLES = st.sampled_from(["user", "assistant", "tool"])
AROUND = st.sampled_from(["", "{function_string}", "x{function_string}y", "z"])
FIELDS = st.fixed_dictionaries(
    {
        "system_template": st.builds("{}{{system_message}}{}".format, AROUND, AROUND),
        "system_message": TEXT,
        "add_role_after_system_message": st.booleans(),
        "roles": st.fixed_dictionaries({"user": TEXT, "assistant": TEXT, "tool": TEXT}),
        "role_templates": st.fixed_dictionaries(
            {
                role: st.builds(f"{{}}{{{{{role}_message}}}}{{}}".format, AROUND, AROUND)
                for role in ("user", "assistant", "tool")
            }
        ),
        "seps": st.lists(TEXT, min_size=1, max_size=2),
        "role_content_sep": TEXT,
        "role_empty_sep": TEXT,
        "function_string": TEXT,
    }
)


@given(fields=FIELDS, chat=st.lists(st.tuples(ROLES, TEXT), max_size=5))
def test_any_template_renders_the_reference_prompt(
    fields: dict[str, Any], chat: list[tuple[str, str]]
) -> None:
    template = Conversation.from_json_dict(fields)
    messages = [{"role": role, "content": content} for role, content in chat]

    assert template.render(messages) == reference_prompt(fields, chat)
    assert Conversation.from_json_dict(template.to_json_dict()) == template


def test_a_developer_message_is_a_system_message() -> None:
    developer = {**SYSTEM, "role": "developer"}

    assert make_conversation().render([developer, *CHAT]) == CHATML_PROMPT


def test_messages_of_the_template_come_first() -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    earlier = [["user", parts], ["assistant", "Hello."]]
    template = make_conversation(messages=earlier, system_template="")

    assert template.render(CHAT[2:]) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_placeholders_within_contents_are_not_replaced() -> None:
    tricky = "{function_string} {user_message} {system_message}"
    messages = [{"role": "system", "content": tricky}, {"role": "user", "content": tricky}]
    template = make_conversation(system_template="{system_message}|{function_string}|")

    prompt = template.render(messages, tools=[TOOL])

    assert prompt.count(tricky) == 2
    assert f"|[{json.dumps(TOOL['function'])}]|" in prompt


def test_functions_replace_the_last_placeholder_only() -> None:
    template = make_conversation(
        system_template="", role_templates={"user": "{user_message} f={function_string};"}
    )

    prompt = template.render(CHAT, tools=[TOOL])

    assert "Hi f=;" in prompt
    assert f"Why? f=[{json.dumps(TOOL['function'])}];" in prompt
    assert "Why? f=;" in template.render(CHAT)


def test_tool_calls_of_the_history_are_rendered_in_the_models_format() -> None:
    messages = [
        CHAT[0],
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "sunny", "tool_call_id": "call_1"},
    ]

    assert Conversation.from_json_dict(TOOL_TEMPLATE).render(messages, tools=[TOOL]) == (
        f"<tool_call> [{json.dumps(TOOL['function'])}]\n<|im_start|>user\nHi<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Rom"}}\n</tool_call><|im_end|>\n<|im_start|>tool\nsunny<|im_end|>\n'
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("system_template", "rendered_call"),
    [
        ("[TOOL_CALLS]", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rom"}}]'),
        (
            '{"name": function name, "parameters": dictionary}',
            '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Rom"}}',
        ),
    ],
)
def test_tool_calls_are_rendered_in_the_format_that_the_template_contains(
    system_template: str, rendered_call: str
) -> None:
    template = make_conversation(system_template=system_template)
    messages = [CHAT[0], {"role": "assistant", "content": "Well.", "tool_calls": [CALL]}]

    assert f"assistant\nWell.\n{rendered_call}<|im_end|>" in template.render(messages)


def test_reasoning_in_the_history_is_omitted() -> None:
    template = get_conversation_template("deepseek_r1_qwen")
    answer = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nHello."}
    chat = [SYSTEM, CHAT[0], answer, CHAT[2]]

    assert template.render(chat) == template.render([SYSTEM, *CHAT])
    assert "Hm." not in template.render(chat)
    plain = [SYSTEM, CHAT[0], {**answer, "content": "\nHello."}, CHAT[2]]
    assert "<｜Assistant｜>\nHello." in template.render(plain)
    assert "Hm." in template.render(chat[:3], add_generation_prompt=False)


@pytest.mark.parametrize(
    ("messages", "fields", "reason"),
    [
        ([CHAT[0], SYSTEM], {}, "role 'system'"),
        ([CHAT[0], {"role": "tool", "content": "", "tool_call_id": "1"}], {}, "role 'tool'"),
        ([SYSTEM, CHAT[0]], {"system_template": "fixed"}, "system message"),
        ([CHAT[0], {"role": "assistant", "tool_calls": [CALL]}], {}, "tool-call format"),
    ],
)
def test_an_unsupported_message_is_rejected(
    messages: list[dict[str, Any]], fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadRequestError, match=reason) as caught:
        make_conversation(**fields).render(messages)

    assert caught.value.param == "messages"


def test_unsupported_tools_and_variables_are_rejected() -> None:
    with pytest.raises(BadRequestError, match="tools") as caught:
        make_conversation().render(CHAT, tools=[TOOL])
    assert caught.value.param == "tools"

    with pytest.raises(BadRequestError, match="enable_thinking") as caught:
        make_conversation().render(CHAT, enable_thinking=True)
    assert caught.value.param == "chat_template_kwargs"
