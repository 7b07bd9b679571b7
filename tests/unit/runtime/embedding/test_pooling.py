"""The embedding settings of a model directory."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.embedding.pooling import SentenceConfig, read_sentence_config

CLS = {"model_type": "encoder", "pooling_strategy": "cls", "normalize": True}


def write_mlc(directory: Path, metadata: object) -> Path:
    path = directory / "mlc-chat-config.json"
    path.write_text(json.dumps({"model_type": "bert", "embedding_metadata": metadata}))
    return directory


def write_modules(directory: Path, mode: str) -> Path:
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))
    modules = [{"type": "sentence.Pooling", "path": "1_Pooling"}]
    (directory / "modules.json").write_text(json.dumps(modules))
    return directory


def test_a_hugging_face_directory_is_pooled_as_by_sentence_transformers(tmp_path: Path) -> None:
    assert read_sentence_config(ConfigFiles(tmp_path)) == SentenceConfig("mean", None, True)


@pytest.mark.parametrize("metadata", [CLS, {}, None])
def test_an_mlc_directory_is_pooled_as_by_mlc_llm(tmp_path: Path, metadata: object) -> None:
    assert read_sentence_config(ConfigFiles(write_mlc(tmp_path, metadata))).pooling == "cls"


def test_the_metadata_of_an_mlc_directory_is_used(tmp_path: Path) -> None:
    metadata = {"model_type": "encoder", "pooling_strategy": "mean", "normalize": False}

    assert read_sentence_config(ConfigFiles(write_mlc(tmp_path, metadata))) == SentenceConfig(
        "mean", None, False
    )


def test_the_files_of_sentence_transformers_take_precedence(tmp_path: Path) -> None:
    write_modules(write_mlc(tmp_path, CLS), "last")

    assert read_sentence_config(ConfigFiles(tmp_path)).pooling == "last"


def test_a_default_pooling_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "aiomlc"):
        read_sentence_config(ConfigFiles(write_mlc(tmp_path, CLS)))

    assert caplog.messages == [f"{tmp_path}: embeddings are pooled by 'cls'"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"pooling_strategy": "max"}, "embedding_metadata.pooling_strategy"),
        ({"pooling_strategy": 1}, "embedding_metadata.pooling_strategy"),
        ({"normalize": "yes"}, "embedding_metadata.normalize"),
        ({"model_type": "decoder"}, "embedding_metadata.model_type"),
    ],
)
def test_invalid_metadata_is_rejected(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        read_sentence_config(ConfigFiles(write_mlc(tmp_path, CLS | changes)))

    assert caught.value.field == field


def test_prompts_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": {"query": "q: "}, "default_prompt_name": "query"}))

    config = read_sentence_config(ConfigFiles(tmp_path))

    assert (config.prompts, config.default_prompt) == ({"query": "q: "}, "query")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"prompts": {"query": 3}}, "prompts.query"),
        ({"prompts": {"query": "q"}, "default_prompt_name": "other"}, "default_prompt_name"),
    ],
)
def test_an_invalid_prompt_is_named(tmp_path: Path, values: dict[str, Any], field: str) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(values))

    with pytest.raises(ModelLoadError) as caught:
        read_sentence_config(ConfigFiles(tmp_path))

    assert caught.value.field == field
