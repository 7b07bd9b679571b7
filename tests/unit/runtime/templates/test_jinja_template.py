"""Jinja chat templates: the environment of transformers, and the sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from tests.model.gguf_tokenizers import add_byte_level
from tests.unit.gguf.files import write_metadata

USER = {"role": "user", "content": "Hello"}
CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def render(source: str, *messages: dict[str, Any], **variables: Any) -> str:  # noqa: ANN401
    return ChatTemplate(source).render(messages or [USER], **variables)


def test_chatml_is_rendered() -> None:
    prompt = render(CHATML, {"role": "system", "content": "Be brief."}, USER)

    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert render(CHATML, add_generation_prompt=False).endswith("Hello<|im_end|>\n")


def test_blocks_are_trimmed_as_in_transformers() -> None:
    source = "  {% for message in messages %}\n    {{ message.content }}\n  {% endfor %}\nend\n"

    assert render(source) == "    Hello\nend"


def test_loop_controls_are_supported() -> None:
    source = "{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"

    assert render(source) == "012"


def test_the_generation_tag_renders_its_body() -> None:
    assert render("a{% generation %}b{{ messages[0].content }}{% endgeneration %}c") == "abHelloc"


def test_tojson_writes_plain_json() -> None:
    source = "{{ tools | tojson }}|{{ tools[0] | tojson(indent=1) }}"

    prompt = render(source, tools=[{"name": "<é>", "a": [1, None]}])

    assert (
        prompt
        == '[{"name": "<é>", "a": [1, null]}]|{\n "name": "<é>",\n "a": [\n  1,\n  null\n ]\n}'
    )


def test_strftime_now_formats_the_date() -> None:
    assert len(render("{{ strftime_now('%Y-%m-%d') }}")) == len("2026-01-01")


def test_namespaces_and_methods_of_plain_values_work() -> None:
    source = (
        "{% set ns = namespace(n=0, last='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% set ns.last = m.content.split('l')[0] %}{% endfor %}{{ ns.n }}{{ ns.last }}"
        "{% for k, v in dict(a=1).items() %}{{ k }}{{ v }}{% endfor %}"
    )

    assert render(source) == "1Hea1"


def test_special_tokens_and_variables_reach_the_template() -> None:
    template = ChatTemplate("{{ bos_token }}{{ enable_thinking }}", {"bos_token": "<s>"})

    assert template.render([USER], enable_thinking=False) == "<s>False"


def test_an_exception_that_the_template_raises_is_a_bad_request() -> None:
    source = "{{ raise_exception('roles must alternate') }}"

    with pytest.raises(BadRequestError, match="roles must alternate") as caught:
        render(source)

    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
        "{{ messages[7].content }}",
        "{{ undefined_name.field }}",
        "{{ none | length }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ range(10 ** 9) | list }}",
    ],
)
def test_a_template_that_fails_is_a_bad_request(source: str) -> None:
    with pytest.raises(BadRequestError):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ dict(_x=1) }}",
        "{{ (''|attr('__class__')).x }}",
    ],
)
def test_the_sandbox_blocks_private_and_mutating_access(source: str) -> None:
    with pytest.raises(BadRequestError):
        render(source)


def test_a_template_gets_plain_json_values_only() -> None:
    class Text(str):
        __slots__ = ("secret",)

    assert render("{{ messages[0].content }}", {"role": "user", "content": Text("x")}) == "x"
    with pytest.raises(BadRequestError, match="expected a JSON value, got object"):
        render("", {"role": "user", "content": object()})


def test_a_template_gets_the_arguments_of_tool_calls_as_mappings() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    source = "{{ messages[0].tool_calls[0].function.arguments.a }}"

    assert render(source, {"role": "assistant", "tool_calls": [call]}) == "1"


def test_a_template_gets_arguments_that_are_not_json_as_the_model_wrote_them() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": "{a"}}
    source = "{{ messages[0].tool_calls[0].function.arguments }}"

    assert render(source, {"role": "assistant", "tool_calls": [call]}) == "{a"


def test_a_developer_message_is_a_system_message_unless_the_template_supports_it() -> None:
    message = {"role": "developer", "content": "x"}

    assert render("{{ messages[0].role }}", message) == "system"
    assert render("{# developer #}{{ messages[0].role }}", message) == "developer"


def test_a_template_with_a_syntax_error_is_rejected() -> None:
    with pytest.raises(ModelLoadError, match="invalid chat template") as caught:
        ChatTemplate("{% if %}")

    assert caught.value.field == "chat_template"


def test_a_template_is_loaded_from_a_directory(tmp_path: Path) -> None:
    config = {"chat_template": "{{ bos_token }}A", "bos_token": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    from_config = ChatTemplate.load(ConfigFiles(tmp_path))

    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}B")
    from_file = ChatTemplate.load(ConfigFiles(tmp_path))

    assert from_config is not None
    assert from_file is not None
    assert from_config.render([USER]) == "<s>A"
    assert from_file.render([USER]) == "<s>B"


NAMED = [
    {"name": "tool_use", "template": "T{{ x }}"},
    {"name": "rag", "template": "R"},
    {"name": "default", "template": "D{{ y }}"},
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def write_field(directory: Path, name: str, field: object) -> None:
    (directory / name).write_text(json.dumps({"chat_template": field}))


def write_jinja_files(directory: Path) -> None:
    write_field(directory, "tokenizer_config.json", "old")
    (directory / "chat_template.jinja").write_text("D{{ y }}")
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool_use.jinja").write_text("T{{ x }}")
    (directory / "additional_chat_templates" / "rag.jinja").write_text("R")


def write_one_jinja_file(directory: Path) -> None:
    write_jinja_files(directory)
    (directory / "chat_template.jinja").unlink()
    write_field(directory, "tokenizer_config.json", "D{{ y }}")


def write_gguf(directory: Path) -> Path:
    def fill(writer: gguf.GGUFWriter) -> None:
        tokenizer = Tokenizer(BPE(vocab={"a": 0}, merges=[]))
        add_byte_level(writer, tokenizer, "qwen2")
        for name, suffix in (("default", ""), ("tool_use", ".tool_use"), ("rag", ".rag")):
            template = next(each["template"] for each in NAMED if each["name"] == name)
            writer.add_string(f"tokenizer.chat_template{suffix}", template)

    return write_metadata(directory / "a.gguf", fill)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_field(path, "tokenizer_config.json", NAMED),
        lambda path: write_field(path, "chat_template.json", NAMED),
        write_jinja_files,
        write_one_jinja_file,
        write_gguf,
    ],
    ids=["config", "processor", "files", "one file", "GGUF"],
)
def test_a_named_template_is_chosen_by_the_tools(
    write: Callable[[Path], Path | None], tmp_path: Path
) -> None:
    template = ChatTemplate.load(ConfigFiles(write(tmp_path) or tmp_path))

    assert template is not None
    assert [template.for_chat(has_tools=each).render([USER]) for each in (False, True)] == [
        "D",
        "T",
    ]
    assert template.for_chat(has_tools=True).has_variable("x")
    assert not template.for_chat(has_tools=False).has_variable("x")


def test_a_template_of_its_own_replaces_all_of_the_configuration(tmp_path: Path) -> None:
    write_field(tmp_path, "tokenizer_config.json", NAMED)
    write_field(tmp_path, "chat_template.json", "processor")
    (tmp_path / "chat_template.jinja").write_text("new")

    template = ChatTemplate.load(ConfigFiles(tmp_path))

    assert template is not None
    assert template.for_chat(has_tools=True).render([USER], tools=[TOOL]) == "new"


def test_an_invalid_named_template_is_reported_with_its_file(tmp_path: Path) -> None:
    write_jinja_files(tmp_path)
    path = tmp_path / "additional_chat_templates" / "tool_use.jinja"
    path.write_text("{% if %}")

    with pytest.raises(ModelLoadError, match="invalid chat template") as caught:
        ChatTemplate.load(ConfigFiles(tmp_path))

    assert caught.value.path == path


def test_a_directory_without_a_template_loads_none(tmp_path: Path) -> None:
    assert ChatTemplate.load(ConfigFiles(tmp_path)) is None
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert ChatTemplate.load(ConfigFiles(tmp_path)) is None


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000])
def test_an_invalid_tokenizer_config_is_reported_with_its_path(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_text(content)

    with pytest.raises(ModelLoadError) as caught:
        ChatTemplate.load(ConfigFiles(tmp_path))

    assert caught.value.path == path


@pytest.mark.parametrize(
    "config",
    [
        {"chat_template": 5},
        {"chat_template": {"default": "x"}},
        {"chat_template": [5]},
        {"chat_template": ["default"]},
        {"chat_template": [{"name": "default", "template": 5}]},
        {"chat_template": [{"name": ["default"], "template": "x"}]},
        {"chat_template": "{% break %}"},
        {"chat_template": "{{ " + "(" * 5000},
    ],
)
def test_an_invalid_template_is_reported_with_its_file(config: object, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(config))

    with pytest.raises(ModelLoadError) as caught:
        ChatTemplate.load(ConfigFiles(tmp_path))

    assert caught.value.path == path
    assert caught.value.field == "chat_template"
    assert str(caught.value).startswith(f"{path}: ")


def test_a_prompt_ends_with_the_message_to_be_continued() -> None:
    messages = [USER, {"role": "assistant", "content": "im <|im "}]
    template = ChatTemplate(CHATML)
    trimming = ChatTemplate(CHATML.replace("message.content", "message.content | trim"))

    for each in (template, trimming):
        prompt = each.render(messages, add_generation_prompt=False, continue_final_message=True)
        assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\nim <|im ")


def test_a_template_that_omits_the_final_message_cannot_continue_it() -> None:
    with pytest.raises(BadRequestError) as caught:
        render("nothing", {"role": "assistant", "content": "x"}, continue_final_message=True)

    assert caught.value.param == "continue_final_message"
