"""Files of a model directory that are not regular or not plausible are refused early."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aiomlc import EngineConfig, ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.embedding.pooling import read_sentence_config
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.memory_plan import plan_memory
from aiomlc.runtime.loading.model_directory import BUNDLED_DRAFT, ModelDirectory
from aiomlc.runtime.loading.text_files import TextFiles
from tests.model.tiny_encoder import write_encoder
from tests.model.tiny_models import TINY_CONFIGS, write_model

HF_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
OPTIONAL_FILES = ("generation_config.json", "chat_template.jinja")
MLC_FILES = ("mlc-chat-config.json", "tokenizer.json", "tensor-cache.json", "params_shard_0.bin")
ENCODER_FILES = ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json")


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path_factory.mktemp("home")))


def read_decoder(directory: Path) -> None:
    """Read every file that opening a decoder reads."""
    model = ModelDirectory(directory)
    ModelFacts(model).check_tensors()
    plan_memory(model, "local", EngineConfig())
    TextFiles.read(ModelFacts(model))


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path)


SPECIAL = [_fifo, _device, Path.mkdir]


def check_refused(path: Path, make: Callable[[Path], None], read: Callable[[], object]) -> None:
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(ModelLoadError, match=r"must be a regular file|Is a directory") as caught:
        read()

    assert caught.value.path == path
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("make", SPECIAL)
@pytest.mark.parametrize("name", [*HF_FILES, *OPTIONAL_FILES])
def test_a_special_file_in_a_hugging_face_directory_is_refused(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    directory = write_model(tmp_path / "model", "llama")
    read_decoder(directory)

    check_refused(directory / name, make, lambda: read_decoder(directory))


@pytest.mark.parametrize("make", SPECIAL)
@pytest.mark.parametrize("name", MLC_FILES)
def test_a_special_file_in_an_mlc_directory_is_refused(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    directory = shutil.copytree(BUNDLED_DRAFT, tmp_path / "model")

    check_refused(directory / name, make, lambda: read_decoder(directory))


@pytest.mark.parametrize("make", SPECIAL)
@pytest.mark.parametrize("name", ENCODER_FILES)
def test_a_special_file_of_an_encoder_is_refused(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    directory = write_encoder(tmp_path / "model")

    check_refused(directory / name, make, lambda: read_sentence_config(ConfigFiles(directory)))


@pytest.mark.parametrize("layers", [10**6, 10**9, 10**30])
def test_a_number_of_layers_beyond_every_model_is_refused(tmp_path: Path, layers: int) -> None:
    directory = write_model(tmp_path / "model", "llama")
    config = TINY_CONFIGS["llama"] | {"num_hidden_layers": layers}
    (directory / "config.json").write_text(json.dumps(config))

    with pytest.raises(ModelLoadError, match="must be <= 2048") as caught:
        plan_memory(ModelDirectory(directory), "local", EngineConfig())

    assert caught.value.field == "num_hidden_layers"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_hidden_layers": 2000}, "model.layers.3.*tensor is missing"),
        ({"vocab_size": 2**24}, "wrong shape: expected"),
        ({"intermediate_size": 2**20}, "wrong shape: expected"),
        ({"num_attention_heads": 2}, "wrong shape: expected"),
    ],
)
def test_sizes_are_compared_with_the_tensors_that_exist(
    tmp_path: Path, change: dict[str, int], problem: str
) -> None:
    directory = write_model(tmp_path / "model", "llama")
    (directory / "config.json").write_text(json.dumps(TINY_CONFIGS["llama"] | change))

    with pytest.raises(ModelLoadError, match=problem) as caught:
        ModelFacts(ModelDirectory(directory)).check_tensors()

    assert caught.value.path == directory / "model.safetensors"
    assert caught.value.tensor


def test_a_loop_of_links_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "model", "llama")
    (directory / "config.json").unlink()
    _loop(directory / "config.json")

    with pytest.raises(ModelLoadError, match=r"config\.json: cannot read: Too many levels"):
        read_decoder(directory)
