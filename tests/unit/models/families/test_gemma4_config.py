"""Gemma 3n and 4: the plan of each layer, and values that are not supported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc.compiler.job import CompileJob
from aiomlc.errors import ModelLoadError
from aiomlc.models import AttentionConfig, DecoderConfig, MlpConfig
from tests.model.tiny_models import TINY_CONFIGS
from tests.unit.models.read_decoder import read_decoder


def _read(directory: Path, base: str = "gemma4_text", **changes: Any) -> DecoderConfig:  # noqa: ANN401
    return read_decoder(directory, {**TINY_CONFIGS[base], **changes})


def _attention(config: DecoderConfig) -> list[AttentionConfig]:
    mixers = [layer.mixer for layer in config.layers]
    assert all(isinstance(mixer, AttentionConfig) for mixer in mixers)
    return [mixer for mixer in mixers if isinstance(mixer, AttentionConfig)]


def test_layers_with_and_without_windows_have_other_heads(tmp_path: Path) -> None:
    sliding, full, *_ = _attention(_read(tmp_path))

    assert (sliding.num_kv_heads, sliding.head_dim, sliding.values_are_keys) == (4, 16, False)
    assert (full.num_kv_heads, full.head_dim, full.values_are_keys) == (1, 32, True)
    assert (sliding.window, full.window) == (20, 0)


def test_the_cache_holds_the_heads_of_every_layer(tmp_path: Path) -> None:
    config = _read(tmp_path)

    assert config.cache_shape == (4, 8, 4, 16)
    assert not config.has_equal_heads


def test_the_last_layers_read_the_keys_of_the_last_ones_of_their_kind(tmp_path: Path) -> None:
    config = _read(tmp_path, "gemma4_small")

    assert [layer.kv_source for layer in _attention(config)] == [None, None, None, 1, 1, 2]
    assert [config.cache_index(layer) for layer in range(6)] == [0, 1, 2, 1, 1, 2]
    widths = [
        n.feed_forward.intermediate_size
        for n in config.layers
        if isinstance(n.feed_forward, MlpConfig)
    ]
    assert widths == [96] * 3 + [192] * 3


def test_heads_by_layer_are_those_of_kinds(tmp_path: Path) -> None:
    old = _read(tmp_path)
    heads = {"head_dim": 32, "num_key_value_heads": 1}
    new = _read(
        tmp_path,
        global_head_dim=None,
        num_global_key_value_heads=None,
        per_layer_config={"1": heads, "3": heads},
    )

    assert new == old


@pytest.mark.parametrize("omitted", [{"rope_parameters": None}, {}])
def test_settings_of_rope_are_needed_for_the_types_of_layers(
    tmp_path: Path, omitted: dict[str, None]
) -> None:
    full = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0}
    changes: dict[str, Any] = {"rope_parameters": {"full_attention": full}} | omitted

    config = _read(tmp_path, layer_types=["full_attention"] * 4, **changes)

    (rope,) = {layer.rope for layer in _attention(config)}
    assert rope is not None
    assert (rope.rope_type, rope.theta) == ("proportional", 1_000_000.0)


def test_proportional_rope_keeps_the_frequencies_of_the_whole_head(tmp_path: Path) -> None:
    full = _attention(_read(tmp_path))[1]
    assert full.rope is not None

    frequencies = full.rope.inverse_frequencies(32)

    assert frequencies == (
        1.0,
        20000.0 ** (-2 / 32),
        20000.0 ** (-4 / 32),
        20000.0 ** (-6 / 32),
        *(0.0,) * 12,
    )


@pytest.mark.parametrize("name", ["gemma4_text", "gemma4_small", "gemma4_moe"])
def test_a_config_survives_the_compiler_process(tmp_path: Path, name: str) -> None:
    job = CompileJob(config=_read(tmp_path, name), quantization="q0f32")

    assert CompileJob.from_json(json.loads(json.dumps(job.as_json()))) == job


@pytest.mark.parametrize(
    ("field", "changes", "problem"),
    [
        ("use_bidirectional_attention", {"use_bidirectional_attention": "all"}, "must be"),
        ("num_kv_shared_layers", {"num_kv_shared_layers": 4}, "must leave a layer of each type"),
        ("num_kv_shared_layers", {"num_kv_shared_layers": 3}, "must leave a layer of each type"),
        (
            "per_layer_config.1.sliding_window",
            {"per_layer_config": {"1": {"sliding_window": 3}}},
            "is not supported for single layers",
        ),
        (
            "per_layer_config.4",
            {"per_layer_config": {"4": {"head_dim": 32}}},
            "must be a layer, from 0 to 3",
        ),
        (
            "per_layer_config",
            {"per_layer_config": {"1": {"head_dim": 32}}},
            "must give all layers of full_attention the same heads",
        ),
        ("rope_parameters", {"rope_parameters": {"full_attention": {}}}, "must have settings of"),
        ("num_key_value_heads", {"num_global_key_value_heads": 3}, "must divide"),
        ("hidden_activation", {"hidden_activation": "silu"}, "must be"),
        ("hidden_activation", {"hidden_activation": "gelu"}, 'must be "gelu_pytorch_tanh"'),
    ],
)
def test_what_is_not_supported_is_refused_by_its_field(
    tmp_path: Path, field: str, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as error:
        _read(tmp_path, **changes)

    assert error.value.field == field


def test_gates_of_the_first_layers_are_sparse_by_default(tmp_path: Path) -> None:
    config = _read(
        tmp_path,
        "gemma3n_text",
        num_hidden_layers=12,
        layer_types=None,
        intermediate_size=96,
        activation_sparsity_pattern=None,
        num_kv_shared_layers=4,
    )
    mlps = [n.feed_forward for n in config.layers if isinstance(n.feed_forward, MlpConfig)]

    assert [mlp.sparsity for mlp in mlps] == [0.95] * 10 + [0.0] * 2
    assert [layer.window > 0 for layer in _attention(config)] == [
        (i + 1) % 5 > 0 for i in range(12)
    ]


def test_the_old_fields_of_rope_are_those_of_both_kinds(tmp_path: Path) -> None:
    new = _read(tmp_path, "gemma3n_text")
    old = _read(
        tmp_path,
        "gemma3n_text",
        rope_parameters=None,
        rope_theta=20000.0,
        rope_local_base_freq=300.0,
    )

    assert old == new


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("intermediate_size", [96, 96], "must have one entry per layer"),
        ("activation_sparsity_pattern", [0.5], "must have one entry per layer"),
        ("activation_sparsity_pattern", [1.0] * 5, "must be a list of numbers >= 0 and < 1"),
        ("altup_active_idx", 4, "must be < altup_num_inputs"),
        ("num_kv_shared_layers", 5, "must leave a layer of each type"),
        ("hidden_size_per_layer_input", 0, "must be >= 1"),
        ("hidden_activation", "gelu", 'must be "gelu_pytorch_tanh"'),
        ("rope_scaling", {"rope_type": "linear", "factor": 2.0}, "must agree"),
    ],
)
def test_what_gemma_3n_does_not_support_is_refused_by_its_field(
    tmp_path: Path, field: str, value: object, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as error:
        _read(tmp_path, "gemma3n_text", **{field: value})

    assert error.value.field == field
