"""The configs of the towers of Gemma and Qwen: sizes, layers with windows, and wrong fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.models import VisionConfig, read_description
from tests.model.tiny_towers import TOWERS


def _read(
    directory: Path, name: str, vision: dict[str, Any], **changes: object
) -> VisionConfig | None:
    tower = TOWERS[name]
    config = tower.decoder.config(name) | {"vision_config": dict(tower.vision) | vision}
    (directory / "config.json").write_text(json.dumps(config | dict(tower.others or {}) | changes))
    found = read_description(directory).tower
    assert found is None or isinstance(found, VisionConfig)
    return found


def test_the_other_layers_of_qwen2_5_vl_have_windows(tmp_path: Path) -> None:
    vision = _read(tmp_path, "qwen2_5_vl", {"depth": 5, "fullatt_block_indexes": [1, 4]})

    assert vision is not None
    assert (vision.window_layers, vision.window_size) == ((0, 2, 3), 56)
    assert (vision.norm_kind, vision.gated, vision.num_positions) == ("rms", True, 0)


def test_features_of_layers_make_the_rows_of_qwen3_vl_wider(tmp_path: Path) -> None:
    vision = _read(tmp_path, "qwen3_vl", {})

    assert vision is not None
    assert [feature.layer for feature in vision.features] == [0, 1]
    assert vision.embedded_size == 3 * 64
    assert (vision.position_taps, vision.num_merged) == (4, 4)


def test_the_axes_of_a_tower_have_the_same_frequencies(tmp_path: Path) -> None:
    vision = _read(tmp_path, "qwen2_vl", {})
    assert vision is not None
    rope = vision.rope
    assert rope is not None
    frequencies = rope.inverse_frequencies(vision.head_dim)

    assert rope.axes(vision.head_dim) == (1,) * 4 + (2,) * 4
    assert frequencies[:4] == frequencies[4:] == pytest.approx((1, 0.1, 0.01, 0.001))


@pytest.mark.parametrize(
    ("name", "vision", "changes", "problem"),
    [
        ("qwen2_5_vl", {"num_heads": 3}, {}, r"num_heads.* must divide hidden_size / 4"),
        ("qwen2_5_vl", {"hidden_act": "relu"}, {}, r"hidden_act.* must be one of"),
        ("qwen3_vl", {"deepstack_visual_indexes": [1, 0]}, {}, r"must be in ascending order"),
        ("qwen3_vl", {"deepstack_visual_indexes": [0, 3]}, {}, r"in \[0, 3\), got \[0, 3\]"),
        ("gemma3", {}, {"mm_tokens_per_image": 10}, r"mm_tokens_per_image.* must be the square"),
        ("gemma3", {}, {"mm_tokens_per_image": 64}, r"mm_tokens_per_image.* must be the square"),
        ("gemma4", {"num_key_value_heads": 1}, {}, r"num_key_value_heads.* must be num_attention"),
        ("gemma4", {"hidden_activation": "silu"}, {}, r"hidden_activation.* must be"),
    ],
)
def test_wrong_fields_of_towers_are_named(
    tmp_path: Path, name: str, vision: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem):
        _read(tmp_path, name, vision, **changes)


def test_a_tower_that_is_not_supported_or_absent_leaves_the_text(tmp_path: Path) -> None:
    assert _read(tmp_path, "gemma4", {"use_clipped_linears": True}) is None
    assert _read(tmp_path, "gemma3", {}, vision_config={}) is None
