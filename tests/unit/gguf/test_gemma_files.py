"""RoPE in files of Gemma 3n and 4: what llama.cpp reads is read, or refused by its key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.models import AttentionConfig, DecoderConfig, read_description
from tests.model.gguf_files import add_tiny_text, write_gguf
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights

_Change = Callable[[gguf.GGUFWriter], object]


def _read(path: Path, name: str, change: _Change) -> DecoderConfig:
    def add_text(writer: gguf.GGUFWriter) -> None:
        add_tiny_text(writer)
        change(writer)

    write_gguf(path, TINY_CONFIGS[name], tiny_weights(name), add_text)
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
