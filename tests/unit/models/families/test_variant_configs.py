"""Configs of families that differ little from Llama."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.models import DecoderConfig
from tests.model.tiny_models import TINY_CONFIGS
from tests.unit.models.plans import mlp_of, rope_of, ropes_of
from tests.unit.models.read_decoder import read_decoder


def _read(directory: Path, base: str, changes: dict[str, Any]) -> DecoderConfig:
    return read_decoder(directory, TINY_CONFIGS[base] | changes)


def test_families_differ_in_their_biases(tmp_path: Path) -> None:
    def biases(base: str, **changes: object) -> tuple[bool, bool, bool]:
        config = _read(tmp_path, base, changes)
        attention = config.attention[0]
        return attention.qkv_bias, attention.output_bias, mlp_of(config).bias

    assert biases("internlm3") == (True, True, True)
    other_names = {"attention_bias": None, "mlp_bias": None}
    assert biases("internlm3", **other_names) == (False, False, False)
    assert biases("internlm3", **other_names, qkv_bias=True, bias=True) == (True, True, True)
    assert biases("llama_bias") == (True, True, True)
    assert biases("seed_oss") == (True, False, False)
    assert biases("seed_oss", attention_bias=None) == (True, False, False)
    assert biases("seed_oss", attention_out_bias=True) == (True, True, False)


def test_families_have_their_own_default_rope_theta(tmp_path: Path) -> None:
    def theta(base: str) -> float:
        return rope_of(_read(tmp_path, base, {"rope_theta": None})).theta

    assert (theta("llama_bias"), theta("helium"), theta("ernie4_5")) == (1e4, 1e5, 5e5)


def test_exaone4_with_windows_has_rope_only_in_windowed_layers(tmp_path: Path) -> None:
    config = _read(tmp_path, "exaone4_window", {})

    assert config.windows == (20, 0, 20)
    rope = rope_of(_read(tmp_path, "exaone4", {}))
    assert ropes_of(config) == (rope, None, rope)


def test_glm_pads_frequencies_to_the_head_dim(tmp_path: Path) -> None:
    frequencies = rope_of(_read(tmp_path, "glm", {})).inverse_frequencies(32)

    assert frequencies == pytest.approx([1e4 ** (-i / 8) for i in range(8)] + [0.0] * 8)


def test_both_rope_formats_of_olmo3_are_equivalent(tmp_path: Path) -> None:
    scaling = TINY_CONFIGS["olmo3"]["rope_scaling"]
    per_layer_type = {
        "full_attention": scaling | {"rope_theta": 500000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
    }
    old = _read(tmp_path, "olmo3", {})

    new = {"rope_scaling": None, "rope_theta": None, "rope_parameters": per_layer_type}

    assert _read(tmp_path, "olmo3", new) == old
    assert old.windows == (20, 0, 20)
    local, full, last = ropes_of(old)
    assert local == last
    assert local is not None
    assert full is not None
    assert (local.rope_type, local.theta, local.attention_factor) == ("default", 500000.0, 1.0)
    assert (full.rope_type, full.attention_factor) == ("yarn", 1.2)


def test_granite4_reads_the_intermediate_size_of_its_shared_mlp(tmp_path: Path) -> None:
    config = _read(tmp_path, "granitemoehybrid", {"layer_types": ["attention", "attention"]})

    assert mlp_of(config).intermediate_size == 160
    assert config.embedding_scale == 40.0


@pytest.mark.parametrize(
    ("base", "changes", "field", "problem"),
    [
        (
            "exaone4",
            {"sliding_window": 64, "sliding_window_pattern": "LG", "layer_types": None},
            "sliding_window_pattern",
            'must be an integer, got "LG"',
        ),
        (
            "glm4",
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            "rope_parameters",
            "attention factor of 1.0 with partial rotation",
        ),
        ("granitemoehybrid", {"layer_types": ["attention", "mamba"]}, "layer_types", 'got "mamba"'),
        ("granitemoehybrid", {"layer_types": None}, "layer_types", "is missing"),
        ("granitemoehybrid", {"num_local_experts": 4}, "num_local_experts", "must be 0, got 4"),
        (
            "granitemoehybrid",
            {"position_embedding_type": "nope"},
            "position_embedding_type",
            'must be "rope", got "nope"',
        ),
        ("internlm3", {"bias": False}, "bias", r"must equal qkv_bias \(true\), got false"),
        ("phi3", {"attention_bias": True}, "attention_bias", "must be false, got true"),
        ("phi3", {"lm_head_bias": True}, "lm_head_bias", "must be false, got true"),
        ("granite", {"residual_multiplier": 0}, "residual_multiplier", "a positive number, got 0"),
    ],
)
def test_an_invalid_field_is_reported(
    tmp_path: Path, base: str, changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        _read(tmp_path, base, changes)

    assert caught.value.field == field
