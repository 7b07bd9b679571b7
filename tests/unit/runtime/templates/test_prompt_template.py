"""The lookup of a model's chat template, by its directory or by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc import ModelLoadError
from aiomlc.runtime.loading.model_directory import BUNDLED
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.templates.prompt_template import load_prompt_template, template_stop_ids
from aiomlc.runtime.templates.registry import (
    get_conversation_template,
    register_conversation_template,
)
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from tests.unit.runtime.templates.conversation_cases import CHATML, make_conversation, write_config


def test_a_directory_without_a_jinja_template_uses_its_conv_template(tmp_path: Path) -> None:
    assert load_prompt_template(tmp_path, 256) is None
    write_config(tmp_path, None)
    assert load_prompt_template(tmp_path, 256) is None

    write_config(tmp_path, CHATML)
    assert load_prompt_template(tmp_path, 256) == make_conversation()

    write_config(tmp_path, "qwen2")
    assert load_prompt_template(tmp_path, 256) is get_conversation_template("qwen2")

    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert isinstance(load_prompt_template(tmp_path, 256), ChatTemplate)


def test_an_unknown_name_is_rejected_with_similar_names(tmp_path: Path) -> None:
    path = write_config(tmp_path, "LLama_3")

    with pytest.raises(ModelLoadError, match=r"'LLama_3' \(similar: .*llama-3.*\)") as caught:
        load_prompt_template(tmp_path, 256)

    assert (caught.value.path, caught.value.field) == (path, "conv_template")
    with pytest.raises(ModelLoadError, match=r"known: LM, aya-23, chatml, .*wizardlm_7b\)"):
        get_conversation_template("%%")


@pytest.mark.parametrize("value", [1, [], True])
def test_a_conv_template_of_another_type_is_rejected(tmp_path: Path, value: object) -> None:
    write_config(tmp_path, value)

    with pytest.raises(
        ModelLoadError, match="must be an object or the name of a template"
    ) as caught:
        load_prompt_template(tmp_path, 256)

    assert caught.value.field == "conv_template"


def test_a_token_prefix_outside_of_the_vocabulary_is_rejected(tmp_path: Path) -> None:
    write_config(tmp_path, "llama-3")

    with pytest.raises(
        ModelLoadError, match=r"token id 128000, which is not in \[0, 256\)"
    ) as caught:
        load_prompt_template(tmp_path, 256)

    assert caught.value.field == "conv_template.system_prefix_token_ids"
    assert load_prompt_template(tmp_path, 128256) is get_conversation_template("llama-3")


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


def test_stop_strings_that_are_special_tokens_are_stop_tokens() -> None:
    tokenizer = Tokenizer.from_file(BUNDLED / "tokenizer.json")
    # "\u0120" is a token (a space in byte-level form), but not a special token.
    template = make_conversation(stop_str=["<|im_end|>", "\u0120", "User:"], stop_token_ids=[7])

    assert template_stop_ids(template, tokenizer) == (2, 7)
    assert template_stop_ids(None, tokenizer) == ()
