"""The lookup of a model's chat template, by its directory or by name."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from aiomlc import ConvTemplateRegistry, MessagePlaceholders, ModelLoadError
from aiomlc.config import BUNDLED_MODEL
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.templates.prompt_template import load_prompt_template, template_stop_ids
from aiomlc.runtime.templates.registry import (
    get_conversation_template,
    register_conversation_template,
)
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from tests.unit.runtime.templates.conversation_cases import CHATML, make_conversation, write_config


def test_a_directory_without_a_jinja_template_uses_its_conv_template(tmp_path: Path) -> None:
    assert load_prompt_template(ConfigFiles(tmp_path), 256) is None
    write_config(tmp_path, None)
    assert load_prompt_template(ConfigFiles(tmp_path), 256) is None

    write_config(tmp_path, CHATML)
    assert load_prompt_template(ConfigFiles(tmp_path), 256) == make_conversation()

    write_config(tmp_path, "qwen2")
    assert load_prompt_template(ConfigFiles(tmp_path), 256) is get_conversation_template("qwen2")


# What MLC LLM's `gen_config` writes for `--conv-template phi-2`.
PHI_2: dict[str, Any] = {
    "name": "phi-2",
    "system_template": "{system_message}",
    "system_message": "",
    "add_role_after_system_message": True,
    "roles": {"user": "Instruct", "assistant": "Output"},
    "role_templates": {
        "user": "{user_message}",
        "assistant": "{assistant_message}",
        "tool": "{tool_message}",
    },
    "messages": [],
    "seps": ["\n"],
    "role_content_sep": ": ",
    "role_empty_sep": ":",
    "stop_str": ["<|endoftext|>"],
    "stop_token_ids": [50256],
    "function_string": "",
    "use_function_calling": False,
}
QWEN2 = get_conversation_template("qwen2").to_json_dict()


@pytest.mark.parametrize(
    ("value", "is_used", "reason"),
    [
        (PHI_2, False, "which is MLC LLM's own"),
        (PHI_2 | {"strip_reasoning_in_history": False}, False, "which is MLC LLM's own"),
        (QWEN2, False, "which is MLC LLM's own"),
        ("qwen2", False, "which is MLC LLM's own"),
        (PHI_2 | {"system_message": "Be brief."}, True, "because it differs from MLC LLM's"),
        (PHI_2 | {"stop_str": ["= 4"]}, True, "because it differs from MLC LLM's"),
        (PHI_2 | {"stop_token_ids": []}, True, "because it differs from MLC LLM's"),
        (CHATML, True, "because it differs from MLC LLM's"),
    ],
)
def test_a_conv_template_beside_a_jinja_template_is_used_if_the_user_changed_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: object, is_used: bool, reason: str
) -> None:
    write_config(tmp_path, value)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")

    with caplog.at_level(logging.INFO, "aiomlc"):
        template = load_prompt_template(ConfigFiles(tmp_path), 256000)

    assert isinstance(template, Conversation if is_used else ChatTemplate)
    (message,) = caplog.messages
    assert reason in message


def test_a_registered_template_that_a_config_names_is_the_users(tmp_path: Path) -> None:
    conversation = make_conversation(name="test-mine")
    register_conversation_template(conversation, override=True)
    write_config(tmp_path, "test-mine")
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")

    assert load_prompt_template(ConfigFiles(tmp_path), 256) is conversation


@pytest.mark.parametrize("value", [1, "no-such-template", PHI_2 | {"seps": []}])
def test_an_invalid_conv_template_beside_a_jinja_template_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: object
) -> None:
    write_config(tmp_path, value)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")

    assert isinstance(load_prompt_template(ConfigFiles(tmp_path), 256), ChatTemplate)
    (message,) = caplog.messages
    assert "the Jinja template is used, since the conv_template is invalid" in message


def test_an_unknown_name_is_rejected_with_similar_names(tmp_path: Path) -> None:
    path = write_config(tmp_path, "LLama_3")

    with pytest.raises(ModelLoadError, match=r"'LLama_3' \(similar: .*llama-3.*\)") as caught:
        load_prompt_template(ConfigFiles(tmp_path), 256)

    assert (caught.value.path, caught.value.field) == (path, "conv_template")
    with pytest.raises(ModelLoadError, match=r"known: LM, aya-23, chatml, .*wizardlm_7b\)"):
        get_conversation_template("%%")


@pytest.mark.parametrize("value", [1, [], True])
def test_a_conv_template_of_another_type_is_rejected(tmp_path: Path, value: object) -> None:
    write_config(tmp_path, value)

    with pytest.raises(
        ModelLoadError, match="must be an object or the name of a template"
    ) as caught:
        load_prompt_template(ConfigFiles(tmp_path), 256)

    assert caught.value.field == "conv_template"


def test_a_token_prefix_outside_of_the_vocabulary_is_rejected(tmp_path: Path) -> None:
    write_config(tmp_path, "llama-3")

    with pytest.raises(
        ModelLoadError, match=r"token id 128000, which is not in \[0, 256\)"
    ) as caught:
        load_prompt_template(ConfigFiles(tmp_path), 256)

    assert caught.value.field == "conv_template.system_prefix_token_ids"
    assert load_prompt_template(ConfigFiles(tmp_path), 128256) is get_conversation_template(
        "llama-3"
    )


def test_a_name_is_registered_once_unless_overridden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aiomlc.runtime.templates.registry._registered", {})
    first, second = make_conversation(name="mine"), make_conversation(name="mine", seps=[""])

    register_conversation_template(first)
    with pytest.raises(ValueError, match="already registered"):
        register_conversation_template(second)
    assert get_conversation_template("mine") is first

    register_conversation_template(second, override=True)
    assert get_conversation_template("mine") is second
    with pytest.raises(ValueError, match="must have a name"):
        register_conversation_template(make_conversation())


def test_the_registry_has_the_interface_of_mlc_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiomlc.runtime.templates.registry._registered", {})
    first = make_conversation(name="of a registry")
    second = make_conversation(name="of a registry", system_message="Hi")

    ConvTemplateRegistry.register_conv_template(first)
    with pytest.raises(ValueError, match="already registered"):
        ConvTemplateRegistry.register_conv_template(second)

    assert ConvTemplateRegistry.get_conv_template("of a registry") is first
    ConvTemplateRegistry.register_conv_template(second, override=True)
    assert ConvTemplateRegistry.get_conv_template("of a registry") is second
    assert ConvTemplateRegistry.get_conv_template("chatml") is not None
    assert ConvTemplateRegistry.get_conv_template("unknown") is None


def test_the_placeholders_are_those_of_the_default_templates() -> None:
    conversation = Conversation(roles={"user": "u", "assistant": "a"}, seps=("",))

    assert conversation.system_template == MessagePlaceholders.SYSTEM.value
    assert conversation.role_templates == {
        role.name.lower(): role.value
        for role in (
            MessagePlaceholders.USER,
            MessagePlaceholders.ASSISTANT,
            MessagePlaceholders.TOOL,
        )
    }


def test_stop_strings_that_are_special_tokens_are_stop_tokens() -> None:
    tokenizer = Tokenizer(BUNDLED_MODEL / "tokenizer.json")
    # "\u0120" is a token (a space in byte-level form), but not a special token.
    template = make_conversation(stop_str=["<|im_end|>", "\u0120", "User:"], stop_token_ids=[7])

    assert template_stop_ids(template, tokenizer) == (2, 7)
    assert template_stop_ids(None, tokenizer) == ()
