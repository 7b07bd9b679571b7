"""Directories of formats that are not supported are refused with what they contain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.models import read_description


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("adapter_config.json", "LoRA adapters are not supported"),
        ("pytorch_model-00001-of-00002.bin", "PyTorch's pickled weights are not supported"),
        ("tensor-cache.json", "mlc-chat-config.json, which is missing: `aiomlc gen-config` writes"),
    ],
)
def test_a_directory_of_another_format_is_explained(
    tmp_path: Path, name: str, problem: str
) -> None:
    (tmp_path / name).touch()
    (tmp_path / "params_shard_0.bin").touch()

    with pytest.raises(ModelNotFoundError, match=problem):
        read_description(tmp_path)


def test_a_model_that_reads_images_is_refused_as_such(tmp_path: Path) -> None:
    config = {"model_type": "mllama", "vision_config": {"depth": 32}}
    (tmp_path / "config.json").write_text(json.dumps(config))

    with pytest.raises(ModelLoadError, match="models that read images are not supported"):
        read_description(tmp_path)
