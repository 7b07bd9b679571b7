"""The bundled model with an equivalent `conv_template` instead of its Jinja template."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, MLCEngine, ModelLoadError

HEADER = "<|im_start|>system\n{system_message}<|im_end|>\n"
SYSTEM = {"role": "system", "content": "Your name is Ada."}
CHATML: dict[str, Any] = {
    "name": "pebble",
    "system_template": HEADER,
    "roles": {"user": "<|im_start|>user", "assistant": "<|im_start|>assistant"},
    "seps": ["<|im_end|>\n"],
    "role_content_sep": "\n",
    "role_empty_sep": "\n",
    "stop_str": ["<|im_end|>"],
}
# The tool prompt that the bundled model was trained on.
TOOL_SYSTEM_TEMPLATE = (
    "<|im_start|>system\n{system_message}\n\nYou can call these functions:\n<tools>\n"
    "{function_string}\n</tools>\nTo call one, answer with its name and its arguments as JSON "
    "between <tool_call> and </tool_call>.<|im_end|>\n"
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The name of the city"}},
            "required": ["city"],
        },
    },
}


def copy_model(source: Path, target: Path, **fields: Any) -> Path:  # noqa: ANN401
    """Copy the model without its Jinja template, with changed config fields."""
    shutil.copytree(source, target)
    changes_by_file = {
        "tokenizer_config.json": {"chat_template": None},
        "mlc-chat-config.json": fields,
    }
    for name, changes in changes_by_file.items():
        config = json.loads((target / name).read_text())
        (target / name).write_text(json.dumps({**config, **changes}))

    return target


def conversation() -> list[dict[str, str]]:
    return [
        {"role": "user", "content": "My name is Rosa."},
        {"role": "assistant", "content": "Nice to meet you, Rosa."},
        {"role": "user", "content": "What is my name?"},
    ]


async def complete(engine: AsyncMLCEngine, messages: list[dict[str, str]]) -> tuple[str, str, int]:
    """Return the text, the finish reason and the prompt tokens of a completion."""
    completion = await engine.chat.completions.create(messages=messages, temperature=0)
    choice = completion.choices[0]
    assert completion.usage is not None
    return choice.message.content or "", str(choice.finish_reason), completion.usage.prompt_tokens


@pytest.mark.parametrize("system_template", [HEADER, ""])
async def test_equivalent_conv_template_gives_the_same_output(
    bundled_model: Path, tmp_path: Path, system_template: str
) -> None:
    conv_template = {**CHATML, "system_template": system_template}
    directory = copy_model(bundled_model, tmp_path / "pebble", conv_template=conv_template)
    system = [SYSTEM] if system_template else []
    chats = [
        [*system, *conversation()],
        [*system, {"role": "user", "content": "Who are you?"}],
        [*system, {"role": "user", "content": "What is 12 plus 30?"}],
    ]

    async def complete_all(engine: AsyncMLCEngine) -> list[object]:
        results: list[object] = [None] * len(chats)

        async def run(number: int) -> None:
            results[number] = await complete(engine, chats[number])

        async with create_task_group() as tasks:
            for number in range(len(chats)):
                tasks.start_soon(run, number)

        return results

    async with AsyncMLCEngine() as engine:
        assert engine.conv_template is None
        with_jinja = await complete_all(engine)

    async with AsyncMLCEngine(directory) as engine:
        template = engine.conv_template
        assert template is not None
        assert template.name == "pebble"
        assert await complete_all(engine) == with_jinja

    assert len({str(result) for result in with_jinja}) == len(chats)


async def test_stop_string_of_the_conv_template_ends_the_output_without_eos(
    bundled_model: Path, tmp_path: Path
) -> None:
    request: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Who are you?"}],
        "temperature": 0,
        "max_tokens": 200,
    }
    directory = copy_model(
        bundled_model,
        tmp_path / "pebble",
        conv_template={**CHATML, "system_template": ""},
        eos_token_id=0,
    )
    tokenizer_config = directory / "tokenizer_config.json"
    tokenizer_config.write_text(json.dumps({"eos_token": None}))

    async with AsyncMLCEngine() as engine:
        expected = (await engine.chat.completions.create(**request)).choices[0]
    async with AsyncMLCEngine(directory) as engine:
        stopped = (await engine.chat.completions.create(**request)).choices[0]
        any_text = {"type": "grammar", "syntax": "regex", "definition": r"(.|\n)*"}
        constrained = (
            await engine.chat.completions.create(**request, response_format=any_text)
        ).choices[0]
        endless = (await engine.chat.completions.create(**request, ignore_eos=True)).choices[0]

    assert (stopped.finish_reason, stopped.message.content) == (
        "stop",
        expected.message.content,
    )
    assert constrained.message.content == stopped.message.content
    assert endless.finish_reason == "length"


async def test_system_prefix_token_ids_are_part_of_the_prompt(
    bundled_model: Path, tmp_path: Path
) -> None:
    question = [{"role": "user", "content": "Who are you?"}]
    fields = {**CHATML, "system_template": ""}
    as_text = copy_model(
        bundled_model,
        tmp_path / "as_text",
        conv_template={**fields, "system_template": "<|endoftext|>"},
    )
    as_token = copy_model(
        bundled_model,
        tmp_path / "as_token",
        conv_template={**fields, "system_prefix_token_ids": [0]},
    )

    results = []
    for directory in (as_text, as_token):
        async with AsyncMLCEngine(directory) as engine:
            results.append(await complete(engine, question))

    assert results[0] == results[1]


def test_tool_is_called_with_a_conv_template(bundled_model: Path, tmp_path: Path) -> None:
    directory = copy_model(
        bundled_model,
        tmp_path / "pebble",
        conv_template={
            **CHATML,
            "system_template": TOOL_SYSTEM_TEMPLATE,
            "system_message": "You are a helpful assistant.",
        },
    )
    with MLCEngine(directory) as engine:
        choice = engine.chat.completions.create(
            messages=[{"role": "user", "content": "What is the weather in Rome?"}],
            tools=[WEATHER],
            temperature=0,
        ).choices[0]

    calls = choice.message.tool_calls
    assert calls is not None
    assert choice.finish_reason == "tool_calls"
    assert json.loads(calls[0].function.arguments) == {"city": "Rome"}


async def test_unknown_conv_template_name_is_rejected_with_similar_names(
    bundled_model: Path, tmp_path: Path
) -> None:
    directory = copy_model(bundled_model, tmp_path / "pebble", conv_template="chat_ml")

    with pytest.raises(ModelLoadError, match=r"similar: chatml") as caught:
        async with AsyncMLCEngine(directory):
            pass

    assert caught.value.field == "conv_template"
