"""Configs of gpt-oss are read as transformers reads them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.models import DecoderConfig, ExpertsConfig, decoder_parameters, read_description
from aiomlc.models.parameters.parameter import RowOrder
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights
from tests.unit.models.plans import experts_of, rope_of
from tests.unit.models.read_decoder import read_decoder


def _read(directory: Path, **changes: Any) -> DecoderConfig:  # noqa: ANN401
    return read_decoder(directory, TINY_CONFIGS["gpt_oss"] | changes)


def test_every_layer_has_sinks_biases_and_experts(tmp_path: Path) -> None:
    config = _read(tmp_path)

    experts = ExpertsConfig(
        count=8,
        per_token=4,
        intermediate_size=96,
        normalize=True,
        activation="clamped_swiglu",
        bias=True,
    )
    assert experts_of(config) == (experts, [])
    for layer in config.attention:
        assert layer.sink_scores
        assert layer.qkv_bias
        assert layer.output_bias


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({}, (20, 0, 20, 0)),
        ({"layer_types": None}, (20, 0, 20, 0)),
        ({"layer_types": ["full_attention"] * 3 + ["sliding_attention"]}, (0, 0, 0, 20)),
        ({"sliding_window": None}, ()),
    ],
)
def test_windows_are_in_every_other_layer_unless_the_config_says_which(
    tmp_path: Path, changes: dict[str, Any], windows: tuple[int, ...]
) -> None:
    assert _read(tmp_path, **changes).windows == windows


def test_a_config_without_the_field_has_the_window_of_transformers(tmp_path: Path) -> None:
    values = {n: v for n, v in TINY_CONFIGS["gpt_oss"].items() if n != "sliding_window"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    config = read_description(tmp_path).config

    assert isinstance(config, DecoderConfig)
    assert config.windows == (128, 0, 128, 0)


def test_yarn_is_not_truncated_also_by_default(tmp_path: Path) -> None:
    rope = rope_of(_read(tmp_path))
    default = rope_of(_read(tmp_path, rope_scaling=None))

    assert (rope.rope_type, rope.factor, rope.truncate) == ("yarn", 8.0, False)
    assert (default.rope_type, default.factor, default.truncate) == ("yarn", 32.0, False)
    assert default.original_context == 4096


def test_parameters_use_every_tensor_once(tmp_path: Path) -> None:
    weights = tiny_weights("gpt_oss")
    sizes = dict.fromkeys(weights, 0)
    for parameter in decoder_parameters(_read(tmp_path)):
        is_fused = parameter.fused_source in weights
        sources = (parameter.fused_source,) if is_fused else parameter.sources
        for source in sources:
            sizes[source] += math.prod(parameter.shape) // len(sources)

    fused = {name: value.size for name, value in weights.items() if "qkv" not in name}
    assert {n: s for n, s in sizes.items() if ".self_attn." not in n} == {
        n: s for n, s in fused.items() if ".self_attn." not in n
    }


def test_parameters_come_from_the_tensors_of_all_experts(tmp_path: Path) -> None:
    parameters = {p.name: p for p in decoder_parameters(_read(tmp_path))}

    at = "model.layers.1"
    assert parameters[f"{at}.self_attn.sinks.weight"].sources == (f"{at}.self_attn.sinks",)
    assert parameters[f"{at}.mlp.gate"].sources == (f"{at}.mlp.router.weight",)
    assert parameters[f"{at}.mlp.gate.bias"].sources == (f"{at}.mlp.router.bias",)
    for suffix, source in (("", ""), (".bias", "_bias")):
        gate_up = parameters[f"{at}.mlp.moe_gate_up_proj{suffix}"]
        down = parameters[f"{at}.mlp.moe_down_proj{suffix}"]
        assert gate_up.fused_source == f"{at}.mlp.experts.gate_up_proj{source}"
        assert (gate_up.fused_row_order, gate_up.row_order) == (RowOrder(8, 96, (1, 1)), None)
        assert down.fused_source == f"{at}.mlp.experts.down_proj{source}"
        assert down.fused_row_order is None


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"swiglu_limit": 6.0}, "swiglu_limit", "must be 7.0, got 6.0"),
        ({"swiglu_alpha": 1.0}, "swiglu_alpha", "must be 1.702, got 1.0"),
        ({"swiglu_limit": "x"}, "swiglu_limit", "must be a number, got"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok", "must be <= num_local_experts"),
        ({"intermediate_size": 100}, "intermediate_size", "must be a multiple of 16, got 100"),
    ],
)
def test_an_invalid_field_is_reported(
    tmp_path: Path, changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        _read(tmp_path, **changes)

    assert caught.value.field == field
