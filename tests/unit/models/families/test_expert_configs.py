"""Configs of mixture-of-experts models are read as transformers reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc.compiler.job import CompileJob
from aiomlc.errors import ModelLoadError
from aiomlc.models import (
    DecoderConfig,
    ExpertsConfig,
    MlpConfig,
    decoder_parameters,
    read_description,
)
from tests.model.tiny_models import TINY_CONFIGS
from tests.unit.models.plans import experts_of, rope_of
from tests.unit.models.read_decoder import read_decoder


def _read(directory: Path, base: str, **changes: Any) -> DecoderConfig:  # noqa: ANN401
    return read_decoder(directory, TINY_CONFIGS[base] | changes)


def test_an_experts_config_lists_its_dense_layers(tmp_path: Path) -> None:
    config = _read(tmp_path, "qwen3_moe")

    experts = ExpertsConfig(count=9, per_token=3, intermediate_size=96, normalize=True)
    assert experts_of(config) == (experts, [1])
    assert config.layers[1].feed_forward == MlpConfig(intermediate_size=160)
    assert config.attention[0].qk_norm == "per_head"


@pytest.mark.parametrize(
    ("changes", "dense"),
    [
        ({"mlp_only_layers": []}, []),
        ({"mlp_only_layers": None}, []),
        ({"mlp_only_layers": [0, 2, 7]}, [0, 2]),
        ({"mlp_only_layers": [], "decoder_sparse_step": 2}, [0, 2]),
    ],
)
def test_dense_layers_are_listed_or_derived_from_the_sparse_step(
    tmp_path: Path, changes: dict[str, Any], dense: list[int]
) -> None:
    assert experts_of(_read(tmp_path, "qwen3_moe", **changes))[1] == dense


def test_a_model_may_have_no_layer_with_experts(tmp_path: Path) -> None:
    changes = {"mlp_only_layers": [1], "decoder_sparse_step": 2}

    assert not _read(tmp_path, "qwen3_moe", **changes).has_experts


def test_expert_weights_are_normalized_only_if_the_config_asks_for_it(tmp_path: Path) -> None:
    experts, _ = experts_of(_read(tmp_path, "qwen3_moe", norm_topk_prob=None))

    assert not experts.normalize


def test_the_number_of_experts_is_read_from_either_field(tmp_path: Path) -> None:
    config = _read(tmp_path, "qwen3_moe", num_experts=None, num_local_experts=9)

    assert config == _read(tmp_path, "qwen3_moe")


def test_qwen3_moe_has_a_window_in_all_layers_or_in_none(tmp_path: Path) -> None:
    window = {"sliding_window": 64, "max_window_layers": 1}

    assert _read(tmp_path, "qwen3_moe", **window).windows == ()
    slides = _read(tmp_path, "qwen3_moe", **window, use_sliding_window=True)
    assert slides.windows == (64, 64, 64)


def test_parameters_have_mlc_names(tmp_path: Path) -> None:
    parameters = {p.mlc_name: p for p in decoder_parameters(_read(tmp_path, "qwen3_moe"))}

    router = parameters["model.layers.0.mlp.gate"]
    gate_up = parameters["model.layers.0.mlp.moe_gate_up_proj"]
    down = parameters["model.layers.0.mlp.moe_down_proj"]
    assert (router.shape, router.keep_float32) == ((9, 64), True)
    assert (gate_up.shape, gate_up.keep_float32) == ((9 * 2 * 96, 64), False)
    assert down.shape == (9 * 64, 96)
    assert gate_up.sources[1:3] == (
        "model.layers.0.mlp.experts.0.up_proj.weight",
        "model.layers.0.mlp.experts.1.gate_proj.weight",
    )
    assert "model.layers.1.mlp.gate_up_proj" in parameters


def test_mixtral_has_its_own_tensor_names(tmp_path: Path) -> None:
    parameters = {p.mlc_name: p for p in decoder_parameters(_read(tmp_path, "mixtral"))}

    at = "model.layers.1"
    assert parameters[f"{at}.moe.gate"].sources == (f"{at}.block_sparse_moe.gate.weight",)
    assert parameters[f"{at}.moe.e1_e3"].sources[:3] == (
        f"{at}.block_sparse_moe.experts.0.w1.weight",
        f"{at}.block_sparse_moe.experts.0.w3.weight",
        f"{at}.block_sparse_moe.experts.1.w1.weight",
    )
    assert parameters[f"{at}.moe.e2"].sources[0] == f"{at}.block_sparse_moe.experts.0.w2.weight"
    # Names in newer checkpoints.
    assert parameters[f"{at}.moe.gate"].fused_source == f"{at}.mlp.gate.weight"
    assert parameters[f"{at}.moe.e2"].fused_source == f"{at}.mlp.experts.down_proj"


def test_mixtral_and_olmoe_differ_in_normalization_and_windows(tmp_path: Path) -> None:
    mixtral, olmoe = _read(tmp_path, "mixtral"), _read(tmp_path, "olmoe")

    experts = ExpertsConfig(count=4, per_token=2, intermediate_size=64, normalize=True)
    assert experts_of(mixtral) == (experts, [])
    assert mixtral.windows == (24, 24)
    experts = ExpertsConfig(count=12, per_token=4, intermediate_size=32, normalize=False)
    assert experts_of(olmoe) == (experts, [])
    assert olmoe.attention[0].qk_norm == "full_width"


def test_qwen2_moe_has_a_shared_expert(tmp_path: Path) -> None:
    config = _read(tmp_path, "qwen2_moe")
    parameters = {p.mlc_name: p for p in decoder_parameters(config)}

    assert config.attention[0].qkv_bias
    experts = ExpertsConfig(
        count=7, per_token=3, intermediate_size=32, normalize=False, shared_size=96
    )
    assert experts_of(config) == (experts, [0, 2])
    gate_up = parameters["model.layers.1.mlp.shared_expert.gate_up_proj"]
    gate = parameters["model.layers.1.mlp.shared_expert_gate"]
    assert (gate_up.shape, gate_up.keep_float32) == ((2 * 96, 64), False)
    assert (gate.shape, gate.keep_float32) == ((1, 64), True)


def test_dense_layers_of_qwen3_next_have_a_default_width(tmp_path: Path) -> None:
    values = TINY_CONFIGS["qwen3_next"] | {"mlp_only_layers": [1]}
    del values["intermediate_size"]
    (tmp_path / "config.json").write_text(json.dumps(values))

    config = read_description(tmp_path).config

    assert isinstance(config, DecoderConfig)
    assert config.layers[1].feed_forward == MlpConfig(intermediate_size=5632)


def test_windows_of_qwen2_moe_require_layer_types(tmp_path: Path) -> None:
    window = {"use_sliding_window": True, "sliding_window": 64}
    types = ["full_attention", "sliding_attention"] * 2

    assert _read(tmp_path, "qwen2_moe", **window, layer_types=types).windows == (0, 64, 0, 64)
    with pytest.raises(
        ModelLoadError, match="must be false without layer_types, got true"
    ) as caught:
        _read(tmp_path, "qwen2_moe", **window)

    assert caught.value.field == "use_sliding_window"


def test_mixtral_has_its_own_default_rope_theta(tmp_path: Path) -> None:
    assert rope_of(_read(tmp_path, "mixtral", rope_theta=None)).theta == 1e6


def test_a_job_survives_the_json_round_trip(tmp_path: Path) -> None:
    job = CompileJob(config=_read(tmp_path, "qwen3_moe"), quantization="q4f16_1")

    assert CompileJob.from_json(json.loads(json.dumps(job.as_json()))) == job


def test_clip_qkv_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"must be null: .* not supported") as caught:
        _read(tmp_path, "olmoe", clip_qkv=8.0)

    assert caught.value.field == "clip_qkv"


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"num_experts": None}, "num_local_experts", "is missing"),
        ({"num_experts_per_tok": None}, "num_experts_per_tok", "is missing"),
        (
            {"num_experts_per_tok": 10},
            "num_experts_per_tok",
            r"must be <= num_experts \(9\), got 10",
        ),
        ({"moe_intermediate_size": 100}, "moe_intermediate_size", "a multiple of 16, got 100"),
        ({"hidden_size": 72}, "hidden_size", "must be a multiple of 16, got 72"),
        ({"mlp_only_layers": 1}, "mlp_only_layers", "must be a list of integers, got 1"),
        ({"mlp_only_layers": [True]}, "mlp_only_layers", r"a list of integers, got \[true\]"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step", "must be >= 1, got 0"),
        ({"norm_topk_prob": 1}, "norm_topk_prob", "must be true or false, got 1"),
    ],
)
def test_an_invalid_field_is_reported(
    tmp_path: Path, changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        _read(tmp_path, "qwen3_moe", **changes)

    assert caught.value.field == field
