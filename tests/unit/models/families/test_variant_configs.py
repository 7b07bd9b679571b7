"""Families that are Llama by other names say what they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.models import DecoderConfig, read_description
from tests.model.tiny_models import TINY_CONFIGS


def _read(directory: Path, base: str, changes: dict[str, Any]) -> DecoderConfig:
    (directory / "config.json").write_text(json.dumps(TINY_CONFIGS[base] | changes))
    config = read_description(directory).config
    assert isinstance(config, DecoderConfig)
    return config


def test_families_differ_in_their_biases(tmp_path: Path) -> None:
    def biases(base: str, **changes: object) -> tuple[bool, bool, bool]:
        config = _read(tmp_path, base, changes)
        return config.qkv_bias, config.output_bias, config.mlp_bias

    assert biases("internlm3") == (True, True, True)
    other_names = {"attention_bias": None, "mlp_bias": None}
    assert biases("internlm3", **other_names) == (False, False, False)
    assert biases("internlm3", **other_names, qkv_bias=True, bias=True) == (True, True, True)
    assert biases("llama_bias") == (True, True, True)
    assert biases("seed_oss") == (True, False, False)
    assert biases("seed_oss", attention_bias=None) == (True, False, False)
    assert biases("seed_oss", attention_out_bias=True) == (True, True, False)


def test_families_have_rotations_of_their_own(tmp_path: Path) -> None:
    def theta(base: str) -> float:
        return _read(tmp_path, base, {"rope_theta": None}).rope.theta

    assert (theta("llama_bias"), theta("helium"), theta("ernie4_5")) == (1e4, 1e5, 5e5)


def test_exaone_4_turns_only_where_it_has_a_window_if_it_has_any(tmp_path: Path) -> None:
    config = _read(tmp_path, "exaone4_window", {})

    assert config.windows == (20, 0, 20)
    assert config.layer_ropes == (config.rope, None, config.rope)
    assert _read(tmp_path, "exaone4", {}).layer_ropes == ()


def test_pairs_that_do_not_turn_fill_a_head(tmp_path: Path) -> None:
    frequencies = _read(tmp_path, "glm", {}).rope.inverse_frequencies(32)

    assert frequencies == pytest.approx([1e4 ** (-i / 8) for i in range(8)] + [0.0] * 8)


def test_both_forms_of_olmo_3_mean_the_same(tmp_path: Path) -> None:
    scaling = TINY_CONFIGS["olmo3"]["rope_scaling"]
    kinds = {
        "full_attention": scaling | {"rope_theta": 500000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
    }
    old = _read(tmp_path, "olmo3", {})

    new = {"rope_scaling": None, "rope_theta": None, "rope_parameters": kinds}

    assert _read(tmp_path, "olmo3", new) == old
    assert old.windows == (20, 0, 20)
    local, full, _ = old.layer_ropes
    assert full == old.rope
    assert local is not None
    assert (local.rope_type, local.theta, local.amplitude) == ("default", 500000.0, 1.0)
    assert (old.rope.rope_type, old.rope.amplitude) == ("yarn", 1.2)


def test_granite_4_has_the_inner_size_of_the_layer_that_is_left(tmp_path: Path) -> None:
    config = _read(tmp_path, "granitemoehybrid", {"layer_types": ["attention", "attention"]})

    assert config.intermediate_size == 160
    assert config.embedding_scale == 40.0


@pytest.mark.parametrize(
    ("base", "changes", "field", "problem"),
    [
        (
            "exaone4",
            {"sliding_window": 64, "sliding_window_pattern": "LG", "layer_types": None},
            "sliding_window_pattern",
            "not an integer",
        ),
        (
            "glm4",
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            "rope_parameters",
            "a part of each head",
        ),
        ("granitemoehybrid", {"layer_types": ["attention", "mamba"]}, "layer_types", "'mamba'"),
        ("granitemoehybrid", {"layer_types": None}, "layer_types", "is missing"),
        ("granitemoehybrid", {"num_local_experts": 4}, "num_local_experts", "supported: 0"),
        (
            "granitemoehybrid",
            {"position_embedding_type": "nope"},
            "position_embedding_type",
            "supported: rope",
        ),
        ("internlm3", {"bias": False}, "bias", "differs from qkv_bias"),
        ("phi3", {"attention_bias": True}, "attention_bias", "not supported"),
        ("phi3", {"lm_head_bias": True}, "lm_head_bias", "not supported"),
        ("granite", {"residual_multiplier": 0}, "residual_multiplier", "not a positive number"),
    ],
)
def test_a_fault_names_its_field(
    tmp_path: Path, base: str, changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        _read(tmp_path, base, changes)

    assert caught.value.field == field
