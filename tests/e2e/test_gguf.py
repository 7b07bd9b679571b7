"""A chat with the bundled model as a GGUF file, and with a directory that contains one."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from aiomlc import EngineConfig, MLCEngine, plan_memory
from tests.e2e.pebble_gguf import write_pebble

_ANSWERS = {
    "Who are you?": "Pebble",
    "What is the capital of Italy?": "Rome",
    "What is 12 plus 7?": "19",
}


@pytest.mark.parametrize("kind", [Type.F16, Type.Q8_0, Type.Q4_0], ids=lambda kind: kind.name)
def test_the_answers_are_those_of_the_bundled_model(tmp_path: Path, kind: Type) -> None:
    path = write_pebble(tmp_path / f"Pebble-{kind.name}.gguf", kind)
    config = EngineConfig(num_threads=2, max_total_sequence_length=512)

    with MLCEngine(path, engine_config=config) as engine:
        for question, expected in _ANSWERS.items():
            answer = engine.chat.completions.create(
                messages=[{"role": "user", "content": question}], temperature=0, max_tokens=100
            )

            assert expected in (answer.choices[0].message.content or "")
            assert answer.choices[0].finish_reason == "stop"
            assert answer.model == f"Pebble-{kind.name}"


def test_a_directory_with_one_gguf_file_opens(tmp_path: Path) -> None:
    write_pebble(tmp_path / "pebble.gguf", Type.F16)
    (tmp_path / "README.md").touch()
    config = EngineConfig(num_threads=2, max_total_sequence_length=512)

    with MLCEngine(str(tmp_path), engine_config=config) as engine:
        text = engine.completions.create(prompt="Hello", max_tokens=2, temperature=0)

    assert text.choices[0].text
    assert plan_memory(tmp_path, engine_config=config).models[0].name == "pebble"
