"""Qwen 3 Next: heads for drafts, and the files of llama.cpp's first converter for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aiomlc.config import EngineConfig
from benchmarks.native_model import open_native_model
from tests.model.families.test_logits import check_float32, logits_of, reference
from tests.model.gguf_files import add_tiny_text, write_gguf
from tests.model.make_reference import PROMPT
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights, write_model, write_safetensors


def _check(path: Path) -> None:
    config = EngineConfig(quantization="q0f32", num_threads=2)
    model = open_native_model(path, config).native
    tokens, expected = reference("qwen3_next", "q0f32")
    check_float32(logits_of(model, tokens, [len(PROMPT)]), expected)


@pytest.mark.usefixtures("model_cache")
def test_heads_for_drafts_are_skipped(tmp_path: Path) -> None:
    directory = write_model(tmp_path, "qwen3_next")
    heads = ("mtp.fc.weight", "mtp.layers.0.mlp.gate.weight", "mtp.norm.weight")
    weights = tiny_weights("qwen3_next") | dict.fromkeys(heads, np.ones((4, 4), np.float32))
    write_safetensors(directory / "model.safetensors", weights)

    _check(directory)


@pytest.mark.usefixtures("model_cache")
def test_a_gguf_file_may_have_the_fused_inputs(tmp_path: Path) -> None:
    config, weights = TINY_CONFIGS["qwen3_next"], tiny_weights("qwen3_next")
    path = tmp_path / "a.gguf"

    write_gguf(path, config, weights, add_tiny_text, split_delta_nets=False)

    assert b"blk.0.ssm_in.weight" in path.read_bytes()
    _check(path)
