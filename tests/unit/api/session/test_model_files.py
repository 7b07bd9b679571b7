"""Tests of the properties of a model that is not open."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    EngineClosedError,
    MLCEngine,
    ModelNotFoundError,
)
from aiomlc.config import BUNDLED_MODEL
from aiomlc.testing import fake_loader

pytestmark = pytest.mark.timeout(20)
NAMES = ("tokenizer", "max_input_sequence_length", "conv_template")


def copy_bundled_model(target: Path, **fields: object) -> Path:
    """Copy the bundled model, and change fields of its configuration."""
    target.mkdir()
    for path in BUNDLED_MODEL.iterdir():
        shutil.copy(path, target)

    config = json.loads((target / "mlc-chat-config.json").read_text())
    (target / "mlc-chat-config.json").write_text(json.dumps({**config, **fields}))
    return target


def test_the_tokenizer_is_read_once() -> None:
    engine = AsyncMLCEngine()

    tokenizer = engine.tokenizer

    assert tokenizer.decode(tokenizer.encode("Hello you")) == "Hello you"
    assert engine.tokenizer is tokenizer
    engine.terminate()


def test_the_context_window_and_the_conversation_template_are_read(tmp_path: Path) -> None:
    directory = copy_bundled_model(tmp_path / "model", conv_template="chatml")
    tokenizer_config = directory / "tokenizer_config.json"
    tokenizer_config.write_text(json.dumps({"eos_token": None}))
    engine = AsyncMLCEngine(directory, max_total_sequence_length=64)

    assert engine.max_input_sequence_length == 64
    assert engine.conv_template is not None
    assert engine.conv_template.name == "chatml"
    engine.terminate()


async def test_the_echo_model_has_the_same_properties_before_it_is_open() -> None:
    engine = AsyncMLCEngine("mock://echo")
    before = (engine.tokenizer.encode("Hello"), engine.max_input_sequence_length)
    assert engine.conv_template is None

    async with engine:
        assert (engine.tokenizer.encode("Hello"), engine.max_input_sequence_length) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_terminated_engine_has_no_properties(name: str) -> None:
    engine = AsyncMLCEngine()
    _ = engine.tokenizer
    engine.terminate()

    with pytest.raises(EngineClosedError):
        getattr(engine, name)


@pytest.mark.parametrize("name", NAMES)
async def test_an_engine_without_its_unloaded_model_has_no_properties(name: str) -> None:
    engine = AsyncMLCEngine("mock://echo")
    await engine.reload()
    await engine.unload()

    with pytest.raises(EngineClosedError):
        getattr(engine, name)

    engine.terminate()


@pytest.mark.parametrize("name", NAMES)
def test_properties_are_unknown_before_a_custom_loader_has_run(name: str) -> None:
    engine = AsyncMLCEngine(loader=fake_loader())

    with pytest.raises(EngineClosedError):
        getattr(engine, name)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_model_directory_raises(name: str, tmp_path: Path) -> None:
    engine = AsyncMLCEngine(tmp_path)

    with pytest.raises(ModelNotFoundError):
        getattr(engine, name)


def test_an_encoder_has_no_tokenizer_and_no_context_window(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("engine_class", [AsyncMLCEngine, MLCEngine])
def test_a_missing_model_directory_raises_in_the_constructor(
    tmp_path: Path, engine_class: Callable[..., object]
) -> None:
    with pytest.raises(ModelNotFoundError, match="missing: no such file or directory"):
        engine_class(tmp_path / "missing")


async def test_the_first_call_of_metrics_opens_the_model() -> None:
    engine = AsyncMLCEngine("mock://echo")

    assert (await engine.metrics())["prompt_tokens_sum"] == 0
    engine.terminate()
    closed = AsyncMLCEngine("mock://echo")
    closed.terminate()
    with pytest.raises(EngineClosedError):
        await closed.metrics()
