"""Logits of tiny models in GGUF equal those of transformers on the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiomlc.config import EngineConfig
from aiomlc.runtime.native.model import NativeModel
from benchmarks.native_model import open_native_model
from tests.model.families.test_logits import check_float32, logits_of, reference
from tests.model.gguf_blocks import TYPE_SETS, dequantized_values, encoder
from tests.model.gguf_files import add_tiny_text, write_gguf, write_tiny_gguf
from tests.model.make_reference import PROMPT
from tests.model.tiny_models import TINY_CONFIGS, random_weights

# Of each quirk of the format one: permuted queries and keys, and factors of RoPE; norms that
# include one; factors by length, and fused matrices; stacked and shared experts; separated QKV;
# layers without key heads; the order of value heads, and the form of decays; heads by layer, and
# names of Gemma 4.
_NAMES = (
    "llama",
    "gemma2",
    "gemma3n_text",
    "gemma4_moe",
    "gemma4_small",
    "gemma4_text",
    "phi3_long",
    "qwen2_moe",
    "gpt_neox",
    "lfm2",
    "lfm2_moe",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "qwen3_next",
)


def _open(path: Path, **options: Any) -> NativeModel:  # noqa: ANN401 - of EngineConfig.
    config = EngineConfig(num_threads=2, **options)
    return open_native_model(path, config).native


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("name", _NAMES)
def test_float32_logits_equal_transformers(tmp_path: Path, name: str) -> None:
    tokens, expected = reference(name, "q0f32")
    model = _open(write_tiny_gguf(tmp_path / f"{name}.gguf", name))

    actual = logits_of(model, tokens, [len(PROMPT)])

    check_float32(actual, expected)
    assert actual.argmax(1).tolist() == tokens


_LARGER = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "head_dim": 64}


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("name", TYPE_SETS)
def test_every_type_gives_the_logits_of_its_dequantized_numbers(tmp_path: Path, name: str) -> None:
    config = TINY_CONFIGS["llama"] | _LARGER
    weights = random_weights(config, seed=5)
    encode = encoder(TYPE_SETS[name])
    path = write_gguf(tmp_path / "a.gguf", config, weights, add_tiny_text, encode)
    plain = dequantized_values(encode)
    reference_path = write_gguf(tmp_path / "b.gguf", config, weights, add_tiny_text, plain)
    tokens = PROMPT[:24]

    expected = logits_of(_open(reference_path), tokens, [len(PROMPT)])
    actual = logits_of(_open(path), tokens, [len(PROMPT)])

    errors = np.abs(actual - expected).max(1)  # Activations are rounded to 8 bits.
    assert errors.max() <= 3e-2 * (expected.max() - expected.min())
    assert (actual.argmax(1) == expected.argmax(1)).mean() > 0.75


@pytest.mark.usefixtures("model_cache")
def test_shards_are_one_model(tmp_path: Path) -> None:
    tokens, expected = reference("qwen2", "q0f32")
    write_tiny_gguf(tmp_path / "m.gguf", "qwen2", split_max_tensors=7)

    actual = logits_of(_open(tmp_path), tokens[:4], [len(PROMPT)])

    np.testing.assert_allclose(actual, expected[:4], atol=2e-4)
    assert len(list(tmp_path.iterdir())) > 2
