"""Phi 3: MLC directories, and `longrope` within the original context."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from aiomlc.runtime.native.model import NativeModel
from benchmarks.native_model import open_native_model
from tests.model.make_reference import PROMPT
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights, write_model
from tests.model.weight_files import mlc_record, write_mlc

ARCHITECTURE = "phi3_long"
ORIGINAL = TINY_CONFIGS[ARCHITECTURE]["original_max_position_embeddings"]

Directory = Callable[[str], Path]


def _open(directory: Path, **options: Any) -> NativeModel:  # noqa: ANN401
    config = EngineConfig(quantization="q0f32", num_threads=2, **options)
    return open_native_model(directory, config).native


def _logits(model: NativeModel) -> NDArray[np.float32]:
    model.add_sequence(0)
    return model.forward([(0, PROMPT[:ORIGINAL])])


@pytest.fixture
def write_changed(model_cache: Path, tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """Return a function that writes the tiny model with changes of its config."""

    def write(changes: dict[str, Any]) -> Path:
        directory = write_model(tmp_path / "changed", ARCHITECTURE)
        config = json.dumps(TINY_CONFIGS[ARCHITECTURE] | changes)
        (directory / "config.json").write_text(config)
        return directory

    return write


def test_an_engine_for_short_sequences_uses_the_short_factors(
    tiny_directory: Directory, write_changed: Callable[[dict[str, Any]], Path]
) -> None:
    scaling = TINY_CONFIGS[ARCHITECTURE]["rope_scaling"]
    short = write_changed({"rope_scaling": scaling | {"long_factor": scaling["short_factor"]}})
    expected = _logits(_open(short))
    directory = tiny_directory(ARCHITECTURE)

    within = _logits(_open(directory, max_single_sequence_length=ORIGINAL))
    beyond = _logits(_open(directory, max_single_sequence_length=ORIGINAL + 1))

    np.testing.assert_array_equal(within, expected)
    assert (beyond != expected).any()


def test_an_mlc_directory_computes_the_same(
    tiny_directory: Directory, model_cache: Path, tmp_path: Path
) -> None:
    directory = write_model(tmp_path / "mlc", ARCHITECTURE)
    config = TINY_CONFIGS[ARCHITECTURE]
    weights = tiny_weights(ARCHITECTURE)
    tensors = [(mlc_record(_mlc_name(name), value), value) for name, value in weights.items()]
    outer = {"model_type": "phi3", "quantization": "q0f32", "context_window_size": 512}
    (directory / "model.safetensors").unlink()
    (directory / "config.json").unlink()
    (directory / "mlc-chat-config.json").write_text(json.dumps(outer | {"model_config": config}))
    write_mlc(directory, tensors)

    mlc = _logits(_open(directory))

    np.testing.assert_array_equal(mlc, _logits(_open(tiny_directory(ARCHITECTURE))))


def _mlc_name(name: str) -> str:
    parts = {
        "model.embed_tokens": "transformer.embd",
        "model.layers": "transformer.h",
        "model.norm": "transformer.norm",
        "input_layernorm": "ln",
        "self_attn.qkv_proj": "mixer.qkv_proj",
        "self_attn.o_proj": "mixer.out_proj",
    }
    for hf, mlc in parts.items():
        name = name.replace(hf, mlc)
    return name
