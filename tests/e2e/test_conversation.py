"""The bundled model without its Jinja template, but with a `conv_template` that says the same."""

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
# The bundled model's words for tools, which it was trained on.
TOOLS = (
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
    """The model in a folder of its own, without its Jinja template."""
    shutil.copytree(source, target)
    changed = {"tokenizer_config.json": {"chat_template": None}, "mlc-chat-config.json": fields}
    for name, changes in changed.items():
        config = json.loads((target / name).read_text())
        (target / name).write_text(json.dumps({**config, **changes}))

    return target


def conversation() -> list[dict[str, str]]:
    return [
        {"role": "user", "content": "My name is Rosa."},
        {"role": "assistant", "content": "Nice to meet you, Rosa."},
        {"role": "user", "content": "What is my name?"},
    ]


async def answer(engine: AsyncMLCEngine, messages: list[dict[str, str]]) -> tuple[str, str, int]:
    completion = await engine.chat.completions.create(messages=messages, temperature=0)
    choice = completion.choices[0]
    assert completion.usage is not None
    return choice.message.content or "", str(choice.finish_reason), completion.usage.prompt_tokens


@pytest.mark.parametrize("system_template", [HEADER, ""])
async def test_an_equivalent_conv_template_gives_the_same_answers(
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

    async def all_answers(engine: AsyncMLCEngine) -> list[object]:
        answers: list[object] = [None] * len(chats)

        async def ask(number: int) -> None:
            answers[number] = await answer(engine, chats[number])

        async with create_task_group() as tasks:
            for number in range(len(chats)):
                tasks.start_soon(ask, number)

        return answers

    async with AsyncMLCEngine() as engine:
        assert engine.conv_template is None
        with_jinja = await all_answers(engine)

    async with AsyncMLCEngine(directory) as engine:
        template = engine.conv_template
        assert template is not None
        assert template.name == "pebble"
        assert await all_answers(engine) == with_jinja

    assert len({str(one) for one in with_jinja}) == len(chats)


async def test_its_stop_string_ends_an_answer_that_nothing_else_would(
    bundled_model: Path, tmp_path: Path
) -> None:
    ask: dict[str, Any] = {
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
        expected = (await engine.chat.completions.create(**ask)).choices[0]
    async with AsyncMLCEngine(directory) as engine:
        stopped = (await engine.chat.completions.create(**ask)).choices[0]
        matching = {"type": "grammar", "syntax": "regex", "definition": r"(.|\n)*"}
        constrained = (
            await engine.chat.completions.create(**ask, response_format=matching)
        ).choices[0]
        endless = (await engine.chat.completions.create(**ask, ignore_eos=True)).choices[0]

    assert (stopped.finish_reason, stopped.message.content) == (
        "stop",
        expected.message.content,
    )
    assert constrained.message.content == stopped.message.content
    assert endless.finish_reason == "length"


async def test_a_prefix_is_part_of_the_prompt(bundled_model: Path, tmp_path: Path) -> None:
    question = [{"role": "user", "content": "Who are you?"}]
    fields = {**CHATML, "system_template": ""}
    spelled = copy_model(
        bundled_model,
        tmp_path / "spelled",
        conv_template={**fields, "system_template": "<|endoftext|>"},
    )
    as_token = copy_model(
        bundled_model,
        tmp_path / "as_token",
        conv_template={**fields, "system_prefix_token_ids": [0]},
    )

    answers = []
    for directory in (spelled, as_token):
        async with AsyncMLCEngine(directory) as engine:
            answers.append(await answer(engine, question))

    assert answers[0] == answers[1]


def test_a_tool_is_called_through_a_conv_template(bundled_model: Path, tmp_path: Path) -> None:
    directory = copy_model(
        bundled_model,
        tmp_path / "pebble",
        conv_template={
            **CHATML,
            "system_template": TOOLS,
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


async def test_an_unknown_name_says_which_field_and_what_is_near(
    bundled_model: Path, tmp_path: Path
) -> None:
    directory = copy_model(bundled_model, tmp_path / "pebble", conv_template="chat_ml")

    with pytest.raises(ModelLoadError, match=r"near it: chatml") as caught:
        async with AsyncMLCEngine(directory):
            pass

    assert caught.value.field == "conv_template"
