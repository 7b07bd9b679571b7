"""The decoders of models that read images: RoPE with three axes, and what images add to layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.models import DecoderConfig, read_description
from tests.model.tiny_pieces import MODELS
from tests.unit.models.read_decoder import read_decoder


def _read(directory: Path, name: str, text: dict[str, Any], **changes: Any) -> DecoderConfig:  # noqa: ANN401
    values = MODELS[name].config(name) | changes
    values["text_config"] = values["text_config"] | text
    return read_decoder(directory, values)


def test_the_axes_of_qwen2_5_vl_follow_each_other(tmp_path: Path) -> None:
    config = _read(tmp_path, "qwen2_5_vl", {})

    assert config.rope_axes == (0, 0, 1, 1, 1, 2, 2, 2)
    assert not config.needs_whole_pieces
    assert config.embedded_row_size == config.hidden_size


def test_the_axes_of_qwen3_vl_alternate(tmp_path: Path) -> None:
    config = _read(tmp_path, "qwen3_vl", {})

    assert config.rope_axes == (0, 1, 2) * 5 + (0,)
    assert config.embedded_row_size == 3 * config.hidden_size


def test_the_last_frequencies_of_alternating_axes_are_those_of_time(tmp_path: Path) -> None:
    settings = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [10, 3, 3]}
    config = _read(tmp_path, "qwen3_vl", {"rope_parameters": settings})

    assert config.rope_axes == (0, 1, 2) * 3 + (0,) * 7


def test_the_fields_of_old_configs_are_at_the_top(tmp_path: Path) -> None:
    expected = _read(tmp_path, "qwen2_5_vl", {})
    values = MODELS["qwen2_5_vl"].config("qwen2_5_vl")
    values = values["text_config"] | {"model_type": "qwen2_5_vl"}
    (tmp_path / "config.json").write_text(json.dumps(values))

    assert read_description(tmp_path).config == expected


@pytest.mark.parametrize("sections", [[2, 3], [2, 3, 4], [-1, 4, 5], [2, 3, 3, 0]])
def test_sections_that_are_not_those_of_a_head_are_refused(
    tmp_path: Path, sections: list[int]
) -> None:
    scaling = {"rope_scaling": {"type": "mrope", "mrope_section": sections}}

    with pytest.raises(ModelLoadError, match=r"mrope_section.* must have 3 integers .* sum 8"):
        _read(tmp_path, "qwen2_5_vl", scaling)


def test_more_deepstack_layers_than_layers_are_refused(tmp_path: Path) -> None:
    vision = {"deepstack_visual_indexes": [0, 1, 2]}

    with pytest.raises(ModelLoadError, match=r"deepstack_visual_indexes.* at most 2 .* got 3"):
        _read(tmp_path, "qwen3_vl", {}, vision_config=vision)


def test_images_of_gemma3_are_computed_whole(tmp_path: Path) -> None:
    config = _read(tmp_path, "gemma3", {})

    assert config.needs_whole_pieces
    assert config.rope_axes == ()
