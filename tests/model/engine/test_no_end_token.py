"""A model without an end token: where a grammar cannot be continued, the answer ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, EngineConfig, GrammarError
from tests.model.tiny_models import (
    TEMPLATE,
    TINY_CONFIGS,
    random_weights,
    tiny_tokenizer,
    write_safetensors,
)

OBJECT = {
    "type": "object",
    "properties": {"a": {"enum": [1, "b", None]}, "c": {"type": "boolean"}},
    "required": ["a", "c"],
    "additionalProperties": False,
}


def _schema(schema: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON.
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def _regex(pattern: str) -> dict[str, Any]:
    return {"type": "grammar", "syntax": "regex", "definition": pattern}


def _write(directory: Path, vocab_size: int) -> Path:
    config = TINY_CONFIGS["llama"] | {"vocab_size": vocab_size, "eos_token_id": None}
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    tiny_tokenizer().save(str(directory / "tokenizer.json"))
    write_safetensors(directory / "model.safetensors", random_weights(config, 0))
    return directory


@pytest.mark.parametrize("vocab_size", [320, 321, 351])  # The mask has 10, 11 and 11 words.
async def test_the_end_of_the_grammar_ends_the_answer(vocab_size: int, tmp_path: Path) -> None:
    model = _write(tmp_path / "model", vocab_size)
    messages = [{"role": "user", "content": "Hello"}]
    async with AsyncMLCEngine(model, engine_config=EngineConfig(quantization="q0f32")) as engine:

        async def answer(response_format: dict[str, Any]) -> tuple[str, str | None]:
            completion = await engine.chat.completions.create(
                messages=messages, response_format=response_format, max_tokens=40, seed=1
            )
            return completion.choices[0].message.content or "", completion.choices[0].finish_reason

        text, reason = await answer(_schema(OBJECT))
        assert json.loads(text)["c"] in (True, False)
        assert reason == "stop"
        assert await answer(_regex("ab?c")) in [("abc", "stop"), ("ac", "stop")]
        text, reason = await answer(_regex("a*"))
        assert (text, reason) == ("a" * 40, "length")
        with pytest.raises(GrammarError, match="only matches the empty text"):
            await answer(_regex(""))
