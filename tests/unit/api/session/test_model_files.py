"""What an engine tells of its model before the model is open."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from aiomlc import AsyncMLCEngine, BadRequestError, EngineClosedError, ModelNotFoundError
from aiomlc.runtime.loading.model_directory import BUNDLED
from aiomlc.testing import fake_loader

pytestmark = pytest.mark.timeout(20)
NAMES = ("tokenizer", "max_input_sequence_length", "conv_template")


def copy_files(target: Path, **fields: object) -> Path:
    """The bundled model's small files, with changes of its configuration."""
    target.mkdir()
    for path in BUNDLED.glob("*.json"):
        shutil.copy(path, target)

    config = json.loads((target / "mlc-chat-config.json").read_text())
    (target / "mlc-chat-config.json").write_text(json.dumps({**config, **fields}))
    return target


def test_a_new_engine_has_its_tokenizer_and_reads_it_once() -> None:
    engine = AsyncMLCEngine()

    tokenizer = engine.tokenizer

    assert tokenizer.decode(tokenizer.encode("Hello you")) == "Hello you"
    assert engine.tokenizer is tokenizer
    engine.terminate()


def test_a_new_engine_has_its_longest_sequence_and_its_template(tmp_path: Path) -> None:
    directory = copy_files(tmp_path / "model", conv_template="chatml")
    tokenizer_config = directory / "tokenizer_config.json"
    tokenizer_config.write_text(json.dumps({"eos_token": None}))
    engine = AsyncMLCEngine(directory, max_total_sequence_length=64)

    assert engine.max_input_sequence_length == 64
    assert engine.conv_template is not None
    assert engine.conv_template.name == "chatml"
    engine.terminate()


async def test_the_model_that_echoes_has_them_too_and_as_it_has_them_when_it_is_open() -> None:
    engine = AsyncMLCEngine("mock://echo")
    before = (engine.tokenizer.encode("Hello"), engine.max_input_sequence_length)
    assert engine.conv_template is None

    async with engine:
        assert (engine.tokenizer.encode("Hello"), engine.max_input_sequence_length) == before


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_that_was_terminated_has_nothing(name: str) -> None:
    engine = AsyncMLCEngine()
    _ = engine.tokenizer
    engine.terminate()

    with pytest.raises(EngineClosedError):
        getattr(engine, name)


@pytest.mark.parametrize("name", NAMES)
async def test_an_engine_whose_model_was_unloaded_has_nothing(name: str) -> None:
    engine = AsyncMLCEngine("mock://echo")
    await engine.reload()
    await engine.unload()

    with pytest.raises(EngineClosedError):
        getattr(engine, name)

    engine.terminate()


@pytest.mark.parametrize("name", NAMES)
def test_what_another_loader_opens_is_not_known_before(name: str) -> None:
    engine = AsyncMLCEngine(loader=fake_loader())

    with pytest.raises(EngineClosedError):
        getattr(engine, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_not_there_is_missed(name: str, tmp_path: Path) -> None:
    engine = AsyncMLCEngine(tmp_path / "none")

    with pytest.raises(ModelNotFoundError):
        getattr(engine, name)


def test_an_encoder_generates_nothing(tmp_path: Path) -> None:
    config = {
        "model_type": "bert",
        "vocab_size": 30,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 40,
        "type_vocab_size": 2,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    engine = AsyncMLCEngine(tmp_path)

    assert engine.conv_template is None
    for name in ("tokenizer", "max_input_sequence_length"):
        with pytest.raises(BadRequestError, match="encoder"):
            getattr(engine, name)
