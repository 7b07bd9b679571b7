"""Whether the output head is tied is decided by the tensors of a checkpoint, as in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiomlc.models import DecoderConfig, read_description
from aiomlc.models.parameters.tensor_names import hf_name
from tests.model.tiny_models import TINY_CONFIGS
from tests.model.weight_files import Array, write_safetensors

TIED = sorted(
    {
        config["model_type"]: name
        for name, config in TINY_CONFIGS.items()
        if config["model_type"] != "phi"
    }.values()
)


def write_model(directory: Path, architecture: str, head: str, *, tied: bool = True) -> Path:
    config: dict[str, Any] = {**TINY_CONFIGS[architecture], "tie_word_embeddings": tied}
    embedding = np.arange(12, dtype=np.float32).reshape(4, 3)
    names = [
        f"{hf_name(config['model_type'], name)}.weight"
        for name in ("model.embed_tokens", "lm_head")
    ]
    tensors: dict[str, tuple[str, Array]] = {
        "other": ("f32", embedding),
        names[0]: ("f32", embedding),
    }
    changed = embedding.copy()
    changed[2, 1] += 1e-3
    if head != "missing":
        tensors[names[1]] = ("f32", embedding if head == "equal" else changed)
    if head == "quantized":
        del tensors[names[1]]
        tensors[names[1].replace(".weight", ".weight_packed")] = (
            "f32",
            np.ones((4, 1), np.float32),
        )
    if head == "alone":
        del tensors[names[0]]
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    write_safetensors(directory / "model.safetensors", tensors)
    return directory


def is_tied(directory: Path) -> bool:
    config = read_description(directory).config
    assert isinstance(config, DecoderConfig)
    return config.tie_word_embeddings


@pytest.mark.parametrize("architecture", TIED)
def test_a_head_that_differs_from_the_embedding_is_not_tied(
    architecture: str, tmp_path: Path
) -> None:
    heads = ("missing", "equal", "other", "quantized", "alone")
    tied = {head: is_tied(write_model(tmp_path / head, architecture, head)) for head in heads}

    assert tied == {
        "missing": True,
        "equal": True,
        "other": False,
        "quantized": False,
        "alone": True,
    }
    untied = write_model(tmp_path / "untied", architecture, "other", tied=False)
    config = read_description(untied).config
    assert read_description(tmp_path / "other").config == config


def test_the_tensors_may_be_in_shards(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "llama_bias", "other")
    (model / "model.safetensors").unlink()
    embedding = np.zeros((4, 3), np.float32)
    files = {"model.embed_tokens.weight": "a.safetensors", "lm_head.weight": "b.safetensors"}
    for value, (name, file) in enumerate(files.items()):
        write_safetensors(model / file, {name: ("f32", embedding + value)})
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))

    assert not is_tied(model)

    write_safetensors(model / "b.safetensors", {"lm_head.weight": ("f32", embedding)})
    assert is_tied(model)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x01", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x02\0\0\0\0\0\0\0{}", b"\x01" * 99],
)
def test_invalid_weights_are_left_to_their_reader(content: bytes, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "llama_bias", "other")
    (model / "model.safetensors").write_bytes(content)

    assert is_tied(model)


@pytest.mark.parametrize(
    "index", [[], {"weight_map": 5}, {"weight_map": {"lm_head.weight": "../a", "x": 1}}, {}]
)
def test_an_invalid_index_is_left_to_its_reader(index: object, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "llama_bias", "other")
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(json.dumps(index))

    assert is_tied(model)
