"""SmolLM 3 has RoPE in the same layers as in transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.models import DecoderConfig, RopeConfig
from tests.model.tiny_models import TINY_CONFIGS
from tests.unit.models.plans import ropes_of
from tests.unit.models.read_decoder import read_decoder


def _read(directory: Path, changes: dict[str, Any]) -> DecoderConfig:
    return read_decoder(directory, TINY_CONFIGS["smollm3"] | changes)


@pytest.mark.parametrize(
    ("changes", "rotates"),
    [
        ({}, [True, False, True]),
        ({"no_rope_layer_interval": None}, [True, True, True]),
        ({"no_rope_layer_interval": None, "num_hidden_layers": 4}, [True, True, True, False]),
        ({"no_rope_layers": [0, 1, 1, 0]}, [False, True, True]),
    ],
)
def test_some_layers_have_no_rope(
    tmp_path: Path, changes: dict[str, Any], rotates: list[bool]
) -> None:
    config = _read(tmp_path, changes)

    rope = RopeConfig(theta=10000.0)
    assert ropes_of(config) == tuple(rope if is_rotary else None for is_rotary in rotates)


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"no_rope_layers": [1, 0]}, "no_rope_layers", r"\(3\) entries, got 2"),
        ({"no_rope_layers": [1, 0, "x"]}, "no_rope_layers", "must be a list of integers"),
        ({"no_rope_layer_interval": 0}, "no_rope_layer_interval", "must be >= 1, got 0"),
        ({"use_sliding_window": True}, "use_sliding_window", "must be false, got true"),
    ],
)
def test_an_invalid_field_is_reported(
    tmp_path: Path, changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        _read(tmp_path, changes)

    assert caught.value.field == field
