"""A model with a Harmony template: its channels are found, enforced and parsed by a real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.text_files import TextFiles
from aiomlc.runtime.output_formats.harmony import HARMONY
from tests.model.tiny_models import tiny_tokenizer, write_model
from tests.unit.runtime.output_formats.harmony_chats import TEMPLATE

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}},
]


@pytest.fixture(scope="module")
def directory(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny gpt-oss whose vocabulary has the markers as special tokens."""
    path = write_model(tmp_path_factory.mktemp("harmony") / "model", "gpt_oss")
    text = tiny_tokenizer().to_str()
    for index, marker in enumerate(HARMONY.markers):
        text = text.replace(f'"<|{index}|>"', json.dumps(marker))
    (path / "tokenizer.json").write_text(text)
    settings = {"chat_template": TEMPLATE, "eos_token": "<|return|>"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def test_markers_are_text_and_two_of_them_end_a_completion(directory: Path) -> None:
    files = TextFiles.read(ModelFacts(find_model(directory)))

    ids = {marker: files.tokenizer.special_token_id(marker) for marker in HARMONY.markers}
    assert files.formats.channel_format == HARMONY
    assert {files.token_bytes[index or 0].decode() for index in ids.values()} == set(ids)
    assert {ids["<|return|>"], ids["<|call|>"]} <= set(files.all_stop_ids)
    assert ids["<|end|>"] not in files.all_stop_ids


@pytest.mark.parametrize("seed", range(4))
async def test_calls_and_structured_answers_are_written_in_their_channels(
    directory: Path, seed: int
) -> None:
    config = EngineConfig(quantization="q4f16_1", num_threads=2)
    tokenizer = TextFiles.read(ModelFacts(find_model(directory))).tokenizer
    # A random model would not end its reasoning.
    common: dict[str, Any] = {
        "messages": HELLO,
        "seed": seed,
        "max_tokens": 400,
        "logit_bias": {str(tokenizer.special_token_id("<|end|>")): 30},
    }
    json_schema = {"name": "city", "schema": SCHEMA}
    async with AsyncMLCEngine(directory, engine_config=config) as engine:
        create = engine.chat.completions.create
        called = await create(tools=TOOLS, tool_choice="required", **common)
        typed = await create(
            response_format={"type": "json_schema", "json_schema": json_schema}, **common
        )

    choice = called.choices[0]
    assert choice.finish_reason == "tool_calls"
    functions = [call.function for call in choice.message.tool_calls or ()]
    assert [function.name for function in functions] == ["get_weather"]
    assert json.loads(functions[0].arguments)["city"] in ("Rome", "Oslo")
    choice = typed.choices[0]
    assert choice.finish_reason == "stop"
    assert json.loads(choice.message.content or "")["city"] in ("Rome", "Oslo")
