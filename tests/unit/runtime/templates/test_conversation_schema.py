"""The JSON schema of conversation templates, and their validation."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from aiomlc import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.prompt_template import load_prompt_template
from aiomlc.runtime.templates.registry import builtin_conversations, get_conversation_template
from tests.unit.runtime.templates.conversation_cases import (
    CHATML,
    CHATML_PROMPT,
    make_conversation,
    write_config,
)


@pytest.mark.parametrize("name", builtin_conversations())
def test_a_template_survives_a_round_trip_through_json(name: str) -> None:
    template = get_conversation_template(name)
    fields = json.loads(json.dumps(template.to_json_dict()))

    assert Conversation.from_json_dict(fields) == template
    assert Conversation.from_json_dict(fields).to_json_dict() == fields


def test_the_json_object_has_the_fields_and_defaults_of_mlc_llm() -> None:
    template = make_conversation(system_template="{system_message}", seps=["a", "b"])

    assert template.to_json_dict() == {
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


def test_a_template_is_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        make_conversation().system_message = "Other"


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"seps": []}, "seps", r"seps should have size 1 or 2\."),
        ({"seps": ["", "", ""]}, "seps", "size 1 or 2"),
        ({"seps": "x"}, "seps", "tuple"),
        ({"roles": {"user": "u"}}, "roles", "roles must contain 'assistant'"),
        ({"roles": {"user": 1, "assistant": ""}}, "roles.user", "string"),
        ({"role_templates": {"user": "x"}}, "role_templates", "{user_message}"),
        ({"stop_token_ids": ["2"]}, "stop_token_ids.0", "integer"),
        ({"stop_token_ids": [-1]}, "stop_token_ids.0", "greater"),
        ({"stop_str": [1]}, "stop_str.0", "string"),
        ({"system_message": None}, "system_message", "string"),
        ({"messages": [["user", [{"type": "image_url"}]]]}, "messages.0.1", "of type 'text'"),
        ({"messages": [["user", [{"type": "text"}]]]}, "messages.0.1", "must be a string"),
    ],
)
def test_an_invalid_field_is_reported_with_its_file(
    tmp_path: Path, fields: dict[str, Any], field: str, reason: str
) -> None:
    path = write_config(tmp_path, {**CHATML, **fields})

    with pytest.raises(ModelLoadError, match=reason) as caught:
        load_prompt_template(ConfigFiles(tmp_path), 256)

    assert (caught.value.path, caught.value.field) == (path, f"conv_template.{field}")
    assert str(path) in str(caught.value)
    assert f"conv_template.{field}" in str(caught.value)


def test_unknown_fields_are_ignored_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_config(tmp_path, {**CHATML, "role_sep": "", "offset": 0})

    with caplog.at_level(logging.WARNING, "aiomlc"):
        template = load_prompt_template(ConfigFiles(tmp_path), 256)

    assert template == make_conversation()
    message = f"{path}: conv_template: ignoring unknown fields: role_sep, offset"
    assert caplog.messages == [message]


def test_known_fields_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    make_conversation()

    assert not caplog.messages


def test_an_unknown_constructor_argument_is_an_error() -> None:
    with pytest.raises(ValidationError, match="role_sep"):
        Conversation(**{**CHATML, "role_sep": ""})


def test_a_message_of_an_unknown_role_is_rejected() -> None:
    with pytest.raises(ModelLoadError, match="role 'tool'"):
        make_conversation(messages=[["tool", ""]])


def test_empty_stop_strings_are_dropped() -> None:
    assert make_conversation(stop_str=["", "end"]).stop_str == ("end",)


def test_as_prompt_renders_the_messages_of_the_template() -> None:
    messages = [("user", "Hi"), ("assistant", "Hello."), ("user", "Why?"), ("assistant", None)]
    conversation = make_conversation(system_message="Be brief.", messages=messages)

    assert conversation.as_prompt() == [CHATML_PROMPT]
    assert conversation.as_prompt(config={}) == [CHATML_PROMPT]
