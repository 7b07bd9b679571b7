"""Files of Gemma 3n and 4: what llama.cpp reads is read, or refused by its key."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import gguf
import numpy as np
import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.tensor_names import tensor_pieces
from aiomlc.models import AttentionConfig, DecoderConfig, read_description
from tests.model.gguf_files import add_tiny_text, write_gguf
from tests.model.tiny_models import TINY_CONFIGS, Weights, tiny_weights

_Change = Callable[[gguf.GGUFWriter], object]


def _read(path: Path, name: str, change: _Change, weights: Weights | None = None) -> DecoderConfig:
    def add_text(writer: gguf.GGUFWriter) -> None:
        add_tiny_text(writer)
        change(writer)

    write_gguf(path, TINY_CONFIGS[name], weights or tiny_weights(name), add_text)
    config = read_description(path).config
    assert isinstance(config, DecoderConfig)
    return config


def _scale(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(4.0)


def test_gemma_3n_scales_rope_in_layers_without_windows(tmp_path: Path) -> None:
    config = _read(tmp_path / "a.gguf", "gemma3n_text", _scale)

    mixers = [layer.mixer for layer in config.layers]
    ropes = [(n.window, n.rope) for n in mixers if isinstance(n, AttentionConfig)]
    assert len(ropes) == 5
    for window, rope in ropes:
        assert rope is not None
        assert (rope.theta, rope.factor) == ((300.0, 1.0) if window else (20000.0, 4.0))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_scale, "gemma4.rope.scaling.type must be none, got 'linear'"),
        (
            lambda w: w.add_rope_scaling_factor(4.0),
            "gemma4.rope.scaling.type must be none, got 'linear'",
        ),
        (
            lambda w: w.add_rope_dimension_count(8),
            r"gemma4.rope.dimension_count must be the size of a head \(32\), got 8",
        ),
        (
            lambda w: w.add_rope_dimension_count_swa(8),
            r"gemma4.rope.dimension_count_swa must be the size of a head \(16\), got 8",
        ),
    ],
)
def test_a_rotation_that_gemma_4_does_not_have_is_refused(
    tmp_path: Path, change: _Change, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem):
        _read(tmp_path / "a.gguf", "gemma4_text", change)


def test_matrices_of_gemma_4_may_be_fused(tmp_path: Path) -> None:
    weights, path = dict(tiny_weights("gemma4_small")), tmp_path / "a.gguf"
    prefixes = [f"model.layers.{layer}.self_attn" for layer in range(3)]
    names = [[f"{prefix}.{part}_proj.weight" for part in "qkv"] for prefix in prefixes]
    matrices = [[weights.pop(name) for name in layer] for layer in names]

    def change(writer: gguf.GGUFWriter) -> None:
        for layer, parts in enumerate(matrices):
            writer.add_tensor(f"blk.{layer}.attn_qkv.weight", np.concatenate(parts))

    config = _read(path, "gemma4_small", change, weights)

    assert [mixer.values_are_keys for mixer in config.attention] == [False] * 3
    pieces = tensor_pieces(read_gguf(path))
    for name, expected in zip(chain(*names), chain(*matrices), strict=True):
        assert pieces[name].shape == expected.shape
        actual = np.fromfile(path, "<f4", expected.size, offset=pieces[name].offset)
        np.testing.assert_array_equal(actual, expected.reshape(-1))


def test_layers_of_gemma_4_with_values_may_have_other_key_heads(tmp_path: Path) -> None:
    config = _read(
        tmp_path / "a.gguf", "gemma4_small", lambda w: w.add_head_count_kv([1, 1, 2, 1, 1, 2])
    )

    assert [
        (mixer.num_kv_heads, mixer.head_dim, mixer.values_are_keys) for mixer in config.attention
    ] == [(1, 16, False), (1, 16, False), (2, 32, False)]
