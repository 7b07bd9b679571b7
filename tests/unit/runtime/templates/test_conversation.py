"""Conversation templates: prompts written out, the JSON they come from, and how they are found."""

# ruff: noqa: RUF001 - DeepSeek's marks look like ASCII.

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from aiomlc import AsyncMLCEngine, BadRequestError, EngineClosedError, MLCEngine, ModelLoadError
from aiomlc.api.chat.prompt import render_prompt, with_template_stops
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.loading.model_directory import BUNDLED
from aiomlc.runtime.output_formats.reasoning_format import find_reasoning_format
from aiomlc.runtime.templates.common_conversations import COMMON_CONVERSATIONS
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.templates.prompt_template import (
    PromptTemplate,
    load_prompt_template,
    template_stop_ids,
)
from aiomlc.runtime.templates.registry import (
    CONVERSATIONS,
    get_conversation_template,
    register_conversation_template,
)
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.testing import FakeCore, fake_loader, fake_model

SYSTEM = {"role": "system", "content": "Be brief."}
CHAT: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Why?"},
)
CHATML: dict[str, Any] = {
    "system_template": "<|im_start|>system\n{system_message}<|im_end|>\n",
    "roles": {"user": "<|im_start|>user", "assistant": "<|im_start|>assistant"},
    "seps": ["<|im_end|>\n"],
    "role_content_sep": "\n",
    "role_empty_sep": "\n",
}
WITH_TOOLS = {
    **CHATML,
    "system_template": "<tool_call> {function_string}\n",
    "roles": {**CHATML["roles"], "tool": "<|im_start|>tool"},
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Rom"}'},
}

# The chat above by each template: with the system message, as its maker's documents show it.
PROMPTS = {
    "chatml": (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "llama-3": (
        "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "llama-2": (
        "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello. </s><s>[INST] Why? [/INST]"
    ),
    "mistral_default": "[INST] Be brief.\n\nHi [/INST] Hello.</s>[INST] Why? [/INST]",
    "ministral3": (
        "[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi[/INST]Hello.</s>[INST]Why?[/INST]"
    ),
    "tinyllama_v1_0": (
        "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello.</s>\n"
        "<|user|>\nWhy?</s>\n<|assistant|>\n"
    ),
    "gemma_instruction": (
        "Be brief.<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
        "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n"
    ),
    "phi-3": (
        "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello.<|end|>\n"
        "<|user|>\nWhy?<|end|>\n<|assistant|>\n"
    ),
    "deepseek_v3": (
        "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Hi<｜Assistant｜>Hello.<｜end▁of▁sentence｜>"
        "<｜User｜>Why?<｜Assistant｜>"
    ),
    "deepseek_r1_qwen": (
        "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Hi<｜Assistant｜>Hello.<｜end▁of▁sentence｜>"
        "<｜User｜>Why?<｜Assistant｜><think>\n"
    ),
    "vicuna_v1.1": "Be brief. USER: Hi ASSISTANT: Hello.</s>USER: Why? ASSISTANT:",
    "LM": "Be brief.HiHello.Why?",
}
for _name in ("qwen2", "qwen3", "hermes2_pro_llama3", "hermes3_llama-3_1"):
    PROMPTS[_name] = PROMPTS["chatml"]
PROMPTS["chatml_nosystem"] = PROMPTS["chatml"].replace(
    "<|im_start|>system\nBe brief.<|im_end|>\n", "Be brief."
)
PROMPTS["llama-3_1"] = PROMPTS["llama-3"]
PROMPTS["deepseek_r1_llama"] = PROMPTS["deepseek_r1_qwen"]


def conversation(**fields: Any) -> Conversation:  # noqa: ANN401
    return Conversation.from_json_dict({**CHATML, **fields})


def model_of(template: PromptTemplate) -> LoadedModel:
    return dataclasses.replace(fake_model(FakeCore()), chat_template=template)


def write_config(directory: Path, conv_template: object) -> Path:
    path = directory / "mlc-chat-config.json"
    path.write_text(json.dumps({"conv_template": conv_template}))
    return path


@pytest.mark.parametrize("name", [one.name for one in COMMON_CONVERSATIONS])
def test_a_registered_template_makes_its_models_prompt(name: str) -> None:
    assert get_conversation_template(name).render([SYSTEM, *CHAT]) == PROMPTS[name]


def test_what_comes_before_the_prompt_is_told_apart_from_it() -> None:
    prefixes = {one.name: one.system_prefix_token_ids for one in COMMON_CONVERSATIONS}

    assert prefixes["llama-3"] == prefixes["llama-3_1"] == (128000,)
    assert prefixes["llama-2"] == prefixes["mistral_default"] == prefixes["vicuna_v1.1"] == (1,)
    assert prefixes["gemma_instruction"] == (2,)
    assert prefixes["chatml"] is None


def test_a_chat_without_a_system_message_has_the_templates_own() -> None:
    template = get_conversation_template("qwen2")

    assert template.render(CHAT[:1]) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template.render([{"role": "system", "content": ""}, CHAT[0]]).startswith(
        "<|im_start|>system\n<|im_end|>\n"
    )


def test_the_prompt_is_the_one_of_the_equivalent_jinja_template() -> None:
    jinja = ChatTemplate(
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    for number in range(1, len(CHAT) + 1):
        for begins in (True, False):
            messages = [SYSTEM, *CHAT[:number]]
            assert conversation().render(messages, add_generation_prompt=begins) == jinja.render(
                messages, add_generation_prompt=begins
            )

    messages = [SYSTEM, *CHAT[:2]]
    assert conversation().render(messages, continue_final_message=True) == jinja.render(
        messages, continue_final_message=True, add_generation_prompt=False
    )


def naive_prompt(fields: dict[str, Any], chat: list[tuple[str, str]]) -> str:
    """The rule as it is written down, for texts without braces."""
    system = fields["system_template"].replace("{system_message}", fields["system_message"])
    seps = fields["seps"]
    prompt: str = system
    for position, (role, content) in enumerate(chat):
        is_bare = position == 0 and system and not fields["add_role_after_system_message"]
        if not is_bare:
            prompt += fields["roles"][role] + fields["role_content_sep"]
        template = fields["role_templates"][role]
        prompt += template.replace(f"{{{role}_message}}", content)
        prompt += seps[1] if role == "assistant" and len(seps) == 2 else seps[0]

    prompt += fields["roles"]["assistant"] + fields["role_empty_sep"]
    before, place, after = prompt.rpartition("{function_string}")
    functions = fields["function_string"] if place else ""
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
def test_any_template_follows_the_rule_as_it_is_written_down(
    fields: dict[str, Any], chat: list[tuple[str, str]]
) -> None:
    template = Conversation.from_json_dict(fields)
    messages = [{"role": role, "content": content} for role, content in chat]

    assert template.render(messages) == naive_prompt(fields, chat)
    assert Conversation.from_json_dict(template.to_json_dict()) == template


def test_the_developer_is_the_system() -> None:
    developer = {**SYSTEM, "role": "developer"}

    assert conversation().render([developer, *CHAT]) == PROMPTS["chatml"]


def test_the_templates_own_messages_come_first() -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    earlier = [["user", parts], ["assistant", "Hello."]]
    template = conversation(messages=earlier, system_template="")

    assert template.render(CHAT[2:]) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_contents_are_never_taken_for_placeholders() -> None:
    tricky = "{function_string} {user_message} {system_message}"
    messages = [{"role": "system", "content": tricky}, {"role": "user", "content": tricky}]
    template = conversation(system_template="{system_message}|{function_string}|")

    prompt = template.render(messages, tools=[TOOL])

    assert prompt.count(tricky) == 2
    assert f"|[{json.dumps(TOOL['function'])}]|" in prompt


def test_only_the_last_place_of_functions_has_them() -> None:
    template = conversation(
        system_template="", role_templates={"user": "{user_message} f={function_string};"}
    )

    prompt = template.render(CHAT, tools=[TOOL])

    assert "Hi f=;" in prompt
    assert f"Why? f=[{json.dumps(TOOL['function'])}];" in prompt
    assert "Why? f=;" in template.render(CHAT)


def test_calls_are_written_in_the_form_the_template_shows() -> None:
    messages = [
        CHAT[0],
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "sunny", "tool_call_id": "call_1"},
    ]

    assert Conversation.from_json_dict(WITH_TOOLS).render(messages, tools=[TOOL]) == (
        f"<tool_call> [{json.dumps(TOOL['function'])}]\n<|im_start|>user\nHi<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Rom"}}\n</tool_call><|im_end|>\n<|im_start|>tool\nsunny<|im_end|>\n'
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("shown", "written"),
    [
        ("[TOOL_CALLS]", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rom"}}]'),
        (
            '{"name": function name, "parameters": dictionary}',
            '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Rom"}}',
        ),
    ],
)
def test_every_form_of_calls_is_written(shown: str, written: str) -> None:
    template = conversation(system_template=shown)
    messages = [CHAT[0], {"role": "assistant", "content": "Well.", "tool_calls": [CALL]}]

    assert f"assistant\nWell.\n{written}<|im_end|>" in template.render(messages)


def test_thoughts_of_earlier_answers_are_forgotten() -> None:
    template = get_conversation_template("deepseek_r1_qwen")
    answer = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nHello."}
    chat = [SYSTEM, CHAT[0], answer, CHAT[2]]

    assert template.render(chat) == PROMPTS["deepseek_r1_qwen"]
    plain = [SYSTEM, CHAT[0], {**answer, "content": "\nHello."}, CHAT[2]]
    assert "<｜Assistant｜>\nHello." in template.render(plain)
    assert "Hm." in template.render(chat[:3], add_generation_prompt=False)


@pytest.mark.parametrize(
    ("messages", "fields", "reason"),
    [
        ([CHAT[0], SYSTEM], {}, "role 'system'"),
        ([CHAT[0], {"role": "tool", "content": "", "tool_call_id": "1"}], {}, "role 'tool'"),
        ([SYSTEM, CHAT[0]], {"system_template": "fixed"}, "system message"),
        ([CHAT[0], {"role": "assistant", "tool_calls": [CALL]}], {}, "tool calls"),
    ],
)
def test_a_message_without_a_place_is_refused(
    messages: list[dict[str, Any]], fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadRequestError, match=reason) as caught:
        conversation(**fields).render(messages)

    assert caught.value.param == "messages"


def test_tools_and_variables_without_a_place_are_refused() -> None:
    with pytest.raises(BadRequestError, match="tools") as caught:
        conversation().render(CHAT, tools=[TOOL])
    assert caught.value.param == "tools"

    with pytest.raises(BadRequestError, match="enable_thinking") as caught:
        conversation().render(CHAT, enable_thinking=True)
    assert caught.value.param == "chat_template_kwargs"


@pytest.mark.parametrize("one", CONVERSATIONS, ids=lambda one: str(one.name))
def test_a_template_is_the_same_after_a_way_through_json(one: Conversation) -> None:
    fields = json.loads(json.dumps(one.to_json_dict()))

    assert Conversation.from_json_dict(fields) == one
    assert Conversation.from_json_dict(fields).to_json_dict() == fields


def test_json_has_upstreams_fields_and_defaults() -> None:
    assert conversation(system_template="{system_message}", seps=["a", "b"]).to_json_dict() == {
        "system_template": "{system_message}",
        "system_message": "",
        "add_role_after_system_message": True,
        "roles": CHATML["roles"],
        "role_templates": {
            "user": "{user_message}",
            "assistant": "{assistant_message}",
            "tool": "{tool_message}",
        },
        "messages": [],
        "seps": ["a", "b"],
        "role_content_sep": "\n",
        "role_empty_sep": "\n",
        "stop_str": [],
        "stop_token_ids": [],
        "strip_reasoning_in_history": False,
        "function_string": "",
        "use_function_calling": False,
    }


def test_a_template_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        conversation().system_message = "Other"


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"seps": []}, "seps", r"seps should have size 1 or 2\."),
        ({"seps": ["", "", ""]}, "seps", "size 1 or 2"),
        ({"seps": "x"}, "seps", "tuple"),
        ({"roles": {"user": "u"}}, "roles", "no role 'assistant'"),
        ({"roles": {"user": 1, "assistant": ""}}, "roles.user", "string"),
        ({"role_templates": {"user": "x"}}, "role_templates", "{user_message}"),
        ({"stop_token_ids": ["2"]}, "stop_token_ids.0", "integer"),
        ({"stop_token_ids": [-1]}, "stop_token_ids.0", "greater"),
        ({"stop_str": [""]}, "stop_str.0", "at least 1"),
        ({"system_message": None}, "system_message", "string"),
        ({"messages": [["user", [{"type": "image_url"}]]]}, "messages.0.1", "no text"),
        ({"messages": [["user", [{"type": "text"}]]]}, "messages.0.1", "no text"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(
    tmp_path: Path, fields: dict[str, Any], field: str, reason: str
) -> None:
    path = write_config(tmp_path, {**CHATML, **fields})

    with pytest.raises(ModelLoadError, match=reason) as caught:
        load_prompt_template(tmp_path, 256)

    assert (caught.value.path, caught.value.field) == (path, f"conv_template.{field}")
    assert str(path) in str(caught.value)
    assert f"conv_template.{field}" in str(caught.value)


def test_unknown_fields_are_named_in_the_log_once_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_config(tmp_path, {**CHATML, "role_sep": "", "offset": 0})

    with caplog.at_level(logging.WARNING, "aiomlc"):
        template = load_prompt_template(tmp_path, 256)

    assert template == conversation()
    told = f"{path}: conv_template: unknown fields are ignored: role_sep, offset"
    assert caplog.messages == [told]


def test_known_fields_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    conversation()

    assert not caplog.messages


def test_an_unknown_field_of_a_programs_own_template_is_an_error() -> None:
    with pytest.raises(ValidationError, match="role_sep"):
        Conversation(**{**CHATML, "role_sep": ""})


def test_a_message_of_an_unknown_role_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="role 'tool'"):
        conversation(messages=[["tool", ""]])


def test_a_directory_without_a_jinja_template_uses_its_conv_template(tmp_path: Path) -> None:
    assert load_prompt_template(tmp_path, 256) is None
    write_config(tmp_path, None)
    assert load_prompt_template(tmp_path, 256) is None

    write_config(tmp_path, CHATML)
    assert load_prompt_template(tmp_path, 256) == conversation()

    write_config(tmp_path, "qwen2")
    assert load_prompt_template(tmp_path, 256) is get_conversation_template("qwen2")

    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert isinstance(load_prompt_template(tmp_path, 256), ChatTemplate)


def test_an_unknown_name_is_refused_with_those_near_it(tmp_path: Path) -> None:
    path = write_config(tmp_path, "LLama_3")

    with pytest.raises(ModelLoadError, match=r"'LLama_3' \(near it: .*llama-3.*\)") as caught:
        load_prompt_template(tmp_path, 256)

    assert (caught.value.path, caught.value.field) == (path, "conv_template")
    with pytest.raises(ModelLoadError, match=r"known: LM, aya-23, chatml, .*wizardlm_7b\)"):
        get_conversation_template("%%")


@pytest.mark.parametrize("value", [1, [], True])
def test_a_template_that_is_neither_object_nor_name_is_refused(
    tmp_path: Path, value: object
) -> None:
    write_config(tmp_path, value)

    with pytest.raises(ModelLoadError, match="neither an object nor a name") as caught:
        load_prompt_template(tmp_path, 256)

    assert caught.value.field == "conv_template"


def test_a_prefix_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path, "llama-3")

    with pytest.raises(ModelLoadError, match="token 128000, the model has 256") as caught:
        load_prompt_template(tmp_path, 256)

    assert caught.value.field == "conv_template.system_prefix_token_ids"
    assert load_prompt_template(tmp_path, 128256) is get_conversation_template("llama-3")


def test_a_name_is_registered_once_unless_it_is_overridden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aiomlc.runtime.templates.registry._registered", {})
    first, second = conversation(name="mine"), conversation(name="mine", seps=[""])

    register_conversation_template(first)
    with pytest.raises(ValueError, match="already"):
        register_conversation_template(second)
    assert get_conversation_template("mine") is first

    register_conversation_template(second, override=True)
    assert get_conversation_template("mine") is second
    with pytest.raises(ValueError, match="no name"):
        register_conversation_template(conversation())


def test_stop_strings_that_are_special_tokens_are_stop_tokens_too() -> None:
    tokenizer = Tokenizer.from_file(BUNDLED / "tokenizer.json")
    # "\u0120" is how the vocabulary spells a space: as a text it is something else.
    template = conversation(stop_str=["<|im_end|>", "\u0120", "User:"], stop_token_ids=[7])

    assert template_stop_ids(template, tokenizer) == (2, 7)
    assert template_stop_ids(None, tokenizer) == ()


def test_variables_and_an_effort_are_refused_by_name() -> None:
    for param, value in {"chat_template_kwargs": {"user": 1}, "reasoning_effort": "low"}.items():
        request = parse_chat_request({"messages": list(CHAT), param: value})
        with pytest.raises(BadRequestError) as caught:
            render_prompt(request, model_of(conversation()))

        assert caught.value.param == param


def test_a_chat_ends_where_the_template_says_unless_it_ignores_ends() -> None:
    model = dataclasses.replace(
        model_of(conversation(stop_str=["User:"])), chat_stop_token_ids=(7,)
    )
    request = parse_chat_request({"messages": list(CHAT), "stop": "x", "stop_token_ids": [5]})
    endless = request.model_copy(update={"ignore_eos": True})

    stopping = with_template_stops(request, model)

    assert (stopping.stop, stopping.stop_token_ids) == (("x", "User:"), (5, 7))
    assert with_template_stops(endless, model) is endless
    assert with_template_stops(request, fake_model(FakeCore())) is request


async def test_a_chat_is_submitted_with_the_prefix_and_the_stops_and_a_completion_is_not() -> None:
    core = FakeCore()
    template = conversation(system_prefix_token_ids=[1, 2], stop_str=["User:"])

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

    assert core.prompts == [[1, 2, *PROMPTS["chatml"].encode()], list(b"Hi")]
    assert [(one.stop, one.stop_token_ids) for one in core.options] == [
        (("User:",), (7,)),
        ((), ()),
    ]


def test_an_engine_with_a_jinja_template_has_no_conversation_template() -> None:
    with MLCEngine(loader=fake_loader()) as engine:
        assert engine.conv_template is None


async def test_thoughts_that_the_template_opens_are_told_apart() -> None:
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
