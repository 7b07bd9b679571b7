"""Configs of the families with LayerNorm are read as transformers and MLC LLM read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.models import DecoderConfig, decoder_parameters, read_description
from tests.model.tiny_models import TINY_CONFIGS
from tests.unit.models.plans import mlp_of, rope_of
from tests.unit.models.read_decoder import read_decoder

# MLC's names of the parameters of the first layer and outside of the layers.
MLC_NAMES: dict[str, set[str]] = {
    "gpt_neox": {
        "gpt_neox.embed_in",
        "gpt_neox.layers.0.input_layernorm.weight",
        "gpt_neox.layers.0.input_layernorm.bias",
        "gpt_neox.layers.0.attention.query_key_value",
        "gpt_neox.layers.0.attention.query_key_value.bias",
        "gpt_neox.layers.0.attention.dense",
        "gpt_neox.layers.0.attention.dense.bias",
        "gpt_neox.layers.0.post_attention_layernorm.weight",
        "gpt_neox.layers.0.post_attention_layernorm.bias",
        "gpt_neox.layers.0.mlp.dense_h_to_4h",
        "gpt_neox.layers.0.mlp.dense_h_to_4h.bias",
        "gpt_neox.layers.0.mlp.dense_4h_to_h",
        "gpt_neox.layers.0.mlp.dense_4h_to_h.bias",
        "gpt_neox.final_layer_norm.weight",
        "gpt_neox.final_layer_norm.bias",
        "embed_out",
    },
    "phi": {
        "transformer.embd",
        "transformer.h.0.ln.weight",
        "transformer.h.0.ln.bias",
        "transformer.h.0.mixer.Wqkv",
        "transformer.h.0.mixer.Wqkv.bias",
        "transformer.h.0.mixer.out_proj",
        "transformer.h.0.mixer.out_proj.bias",
        "transformer.h.0.mlp.fc1",
        "transformer.h.0.mlp.fc1.bias",
        "transformer.h.0.mlp.fc2",
        "transformer.h.0.mlp.fc2.bias",
        "lm_head.ln.weight",
        "lm_head.ln.bias",
        "lm_head.linear",
        "lm_head.linear.bias",
    },
    "stablelm": {
        "model.embed_tokens",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.input_layernorm.bias",
        "model.layers.0.self_attn.qkv_proj",
        "model.layers.0.self_attn.qkv_proj.bias",
        "model.layers.0.self_attn.o_proj",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.post_attention_layernorm.bias",
        "model.layers.0.mlp.gate_up_proj",
        "model.layers.0.mlp.down_proj",
        "model.norm.weight",
        "model.norm.bias",
        "lm_head",
    },
    "starcoder2": {
        "model.embed_tokens",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.input_layernorm.bias",
        "model.layers.0.self_attn.wqkv_pack",
        "model.layers.0.self_attn.wqkv_pack.bias",
        "model.layers.0.self_attn.o_proj",
        "model.layers.0.self_attn.o_proj.bias",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.post_attention_layernorm.bias",
        "model.layers.0.mlp.c_fc",
        "model.layers.0.mlp.c_fc.bias",
        "model.layers.0.mlp.c_proj",
        "model.layers.0.mlp.c_proj.bias",
        "model.norm.weight",
        "model.norm.bias",
    },
}


def _read(directory: Path, base: str, changes: dict[str, Any]) -> DecoderConfig:
    return read_decoder(directory, TINY_CONFIGS[base] | changes)


@pytest.mark.parametrize("base", MLC_NAMES)
def test_parameters_have_mlc_names(tmp_path: Path, base: str) -> None:
    config = _read(tmp_path, base, {})

    names = {parameter.mlc_name for parameter in decoder_parameters(config)}

    assert {name for name in names if ".1." not in name} == MLC_NAMES[base]


def test_starcoder2_without_use_bias_keeps_the_biases_of_its_norms(tmp_path: Path) -> None:
    config = _read(tmp_path, "starcoder2", {"use_bias": False})

    biases = {p.name for p in decoder_parameters(config) if p.name.endswith("bias")}

    assert all("norm" in name for name in biases)
    assert len(biases) == 2 * 2 + 1


def test_starcoder2_is_tied_except_in_mlc_directories(tmp_path: Path) -> None:
    config = _read(tmp_path, "starcoder2", {"tie_word_embeddings": None})
    outer = {
        "model_type": "starcoder2",
        "quantization": "q4f16_1",
        "context_window_size": 512,
        "model_config": TINY_CONFIGS["starcoder2"] | {"tie_word_embeddings": None},
    }
    (tmp_path / "mlc-chat-config.json").write_text(json.dumps(outer))
    mlc_config = read_description(tmp_path).config

    assert config.tie_word_embeddings
    assert isinstance(mlc_config, DecoderConfig)
    assert not mlc_config.tie_word_embeddings


@pytest.mark.parametrize(
    ("base", "changes", "pairs"),
    [
        ("starcoder2", {}, 8),
        ("phi", {}, 4),
        ("nemotron", {"partial_rotary_factor": None}, 4),
        ("phi", {"partial_rotary_factor": None}, 4),
        ("gpt_neox", {}, 2),
        ("gpt_neox", {"rotary_pct": None}, 2),
        ("gpt_neox", {"rotary_pct": 1.0}, 8),
        ("gpt_neox", {"rope_parameters": {"partial_rotary_factor": 0.5}}, 4),
        ("stablelm", {}, 4),
        ("stablelm", {"partial_rotary_factor": None}, 4),
        ("stablelm", {"partial_rotary_factor": 0.5}, 8),
    ],
)
def test_partial_rotation_rotates_a_fraction_of_each_head(
    tmp_path: Path, base: str, changes: dict[str, Any], pairs: int
) -> None:
    config = _read(tmp_path, base, changes)

    assert len(rope_of(config).inverse_frequencies(config.cache_shape.head_dim)) == pairs


def test_cohere_has_the_defaults_of_transformers(tmp_path: Path) -> None:
    absent = {"logit_scale": None, "rope_theta": None, "tie_word_embeddings": None}

    config = _read(tmp_path, "cohere", absent | {"attention_bias": None})

    assert config.logit_scale == 0.0625
    assert rope_of(config).theta == 500000.0
    assert config.tie_word_embeddings
    assert not any(p.name.endswith("bias") for p in decoder_parameters(config))


@pytest.mark.parametrize(
    ("changes", "theta"),
    [
        ({}, 20000.0),
        ({"rotary_emb_base": None}, 10000.0),
        ({"position_embedding_base": 30000}, 30000.0),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 40000.0}}, 40000.0),
    ],
)
def test_gpt_neox_reads_rope_theta_from_its_own_field_or_the_common_ones(
    tmp_path: Path, changes: dict[str, Any], theta: float
) -> None:
    assert rope_of(_read(tmp_path, "gpt_neox", changes)).theta == theta


@pytest.mark.parametrize(
    ("base", "norm_placement"),
    [
        ("starcoder2", "pre"),
        ("gpt_neox", "parallel"),
        ("gpt_neox_serial", "pre"),
        ("phi", "parallel_shared"),
        ("cohere", "parallel_shared"),
        ("nemotron", "pre"),
        ("stablelm", "pre"),
        ("stablelm_parallel", "parallel_shared"),
    ],
)
def test_norm_placement_matches_transformers(
    tmp_path: Path, base: str, norm_placement: str
) -> None:
    assert _read(tmp_path, base, {}).layers[0].norm_placement == norm_placement


@pytest.mark.parametrize(
    ("base", "name", "activation"),
    [
        ("starcoder2", "gelu", "gelu"),
        ("gpt_neox", "gelu_fast", "gelu_tanh"),
        ("gpt_neox", None, "gelu"),
        ("phi", None, "gelu_tanh"),
        ("nemotron", None, "squared_relu"),
        ("nemotron", "relu2", "squared_relu"),
        ("starcoder2", "gelu_new", "gelu_tanh"),
        ("starcoder2", None, "gelu_tanh"),
    ],
)
def test_activations_match_transformers(
    tmp_path: Path, base: str, name: str | None, activation: str
) -> None:
    assert mlp_of(_read(tmp_path, base, {"hidden_act": name})).activation == activation


@pytest.mark.parametrize(
    ("base", "changes", "field", "problem"),
    [
        ("cohere", {"use_qk_norm": True}, "use_qk_norm", "must be false, got true"),
        ("cohere", {"context_window_size": 512}, "model_type", "not supported in MLC format"),
        ("nemotron", {"context_window_size": 512}, "model_type", "not supported in MLC format"),
        ("gpt_neox", {"rotary_pct": 1.5}, "rotary_pct", "must be <= 1, got 1.5"),
        ("gpt_neox", {"hidden_act": "relu"}, "hidden_act", 'one of "gelu", .*, got "relu"'),
        ("phi", {"qk_layernorm": True}, "qk_layernorm", "must be false, got true"),
        ("phi", {"tie_word_embeddings": True}, "tie_word_embeddings", "must be false, got true"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm", "must be false, got true"),
        ("stablelm", {"hidden_act": "gelu"}, "hidden_act", 'must be "silu", got "gelu"'),
        ("stablelm", {"partial_rotary_factor": 0.01}, "partial_rotary_factor", "32 dimensions"),
        ("starcoder2", {"hidden_act": "silu"}, "hidden_act", 'one of "gelu", "gelu_new"'),
        ("starcoder2", {"use_bias": 1}, "use_bias", "must be true or false, got 1"),
        (
            "gpt_neox",
            {"num_key_value_heads": 2, "head_dim": 24},
            "head_dim",
            r"must be hidden_size / num_attention_heads \(64 / 4\), got 24",
        ),
        ("starcoder2", {"norm_epsilon": 0}, "norm_epsilon", "must be a positive number, got 0"),
    ],
)
def test_an_invalid_field_is_reported(
    tmp_path: Path, base: str, changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        _read(tmp_path, base, changes)

    assert caught.value.field == field


def test_gpt_neox_has_one_key_value_head_per_query_head(tmp_path: Path) -> None:
    # GPTNeoXAttention of transformers 5.23 does not read num_key_value_heads.
    config = _read(tmp_path, "gpt_neox", {"num_key_value_heads": 2})

    assert config == _read(tmp_path, "gpt_neox", {"head_dim": 16})
    assert config.cache_shape[2:] == (4, 16)
