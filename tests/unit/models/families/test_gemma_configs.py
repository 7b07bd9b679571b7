"""Configs of the Gemma families are read as transformers reads them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiomlc.compiler import CompileJob
from aiomlc.errors import ModelLoadError
from aiomlc.models import DecoderConfig, RopeConfig, decoder_parameters, read_description
from aiomlc.models.graph.rope_table import rope_table
from tests.model.tiny_models import TINY_CONFIGS
from tests.unit.models.plans import mlp_of, ropes_of
from tests.unit.models.read_decoder import read_decoder


def _read(
    directory: Path, changes: dict[str, Any], *, base: str = "gemma", without: tuple[str, ...] = ()
) -> DecoderConfig:
    return read_decoder(
        directory, {k: v for k, v in TINY_CONFIGS[base].items() if k not in without} | changes
    )


def test_gemma_scales_its_embedding_and_adds_one_to_every_norm(tmp_path: Path) -> None:
    config = _read(tmp_path, {}, without=("head_dim", "tie_word_embeddings"))

    assert config.embedding_scale == math.sqrt(64)
    assert config.cache_shape.head_dim == 256
    assert config.tie_word_embeddings
    parameters = decoder_parameters(config)
    offsets = {p.name: p.weight_offset for p in parameters if p.weight_offset}
    assert set(offsets.values()) == {1.0}
    assert len(offsets) == 2 * config.num_hidden_layers + 1
    assert all(name.endswith("norm.weight") for name in offsets)


@pytest.mark.parametrize(
    "changes",
    [{}, {"hidden_act": "gelu"}, {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": None}],
)
def test_every_name_of_the_gemma_activation_means_gelu_tanh(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert _read(tmp_path, changes) == _read(tmp_path, {})
    assert mlp_of(_read(tmp_path, changes)).activation == "gelu_tanh"


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"hidden_activation": "silu"}, "hidden_activation", 'must be "gelu_pytorch_tanh"'),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention", "must be false"),
    ],
)
def test_an_unsupported_gemma_field_is_reported(
    tmp_path: Path, changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        _read(tmp_path, changes)

    assert caught.value.field == field


def test_gemma2_has_softcapping_and_windows_in_every_second_layer(tmp_path: Path) -> None:
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    config = _read(tmp_path, {"num_hidden_layers": 4}, base="gemma2", without=caps)

    attention = config.attention[0]
    assert (attention.soft_cap, config.final_logit_softcapping) == (50.0, 30.0)
    assert attention.scale == 24**-0.5
    assert config.windows == (20, 0, 20, 0)
    assert {layer.norm_placement for layer in config.layers} == {"sandwich"}
    capless = _read(tmp_path, dict.fromkeys(caps), base="gemma2")
    assert (capless.attention[0].soft_cap, capless.final_logit_softcapping) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, (0, 20, 0)),
        ({"sliding_window_pattern": 3}, (20, 20, 0)),
        ({"sliding_window_size": -1}, (20, 0, 20)),
        ({"sliding_window_size": 9}, (9, 0, 9)),
        ({"sliding_window": None}, ()),
        ({"sliding_window": 512}, ()),
        ({"max_position_embeddings": 8192, "sliding_window": 4096}, (4096, 0, 4096)),
    ],
)
def test_gemma2_windows_follow_the_config(
    tmp_path: Path, changes: dict[str, Any], windows: tuple[int, ...]
) -> None:
    assert _read(tmp_path, changes, base="gemma2").windows == windows


def test_gemma2_config_without_a_window_has_the_default_of_transformers(tmp_path: Path) -> None:
    config = _read(
        tmp_path, {"max_position_embeddings": 8192}, base="gemma2", without=("sliding_window",)
    )

    assert config.windows == (4096, 0, 4096)


LOCAL = RopeConfig(theta=300.0)
GLOBAL = RopeConfig("linear", 20000.0, 8.0)


def test_gemma3_layers_with_a_window_have_their_own_rope(tmp_path: Path) -> None:
    config = _read(tmp_path, {}, base="gemma3_text")

    assert config.windows == (20, 0, 20)
    assert ropes_of(config) == (LOCAL, GLOBAL, LOCAL)
    assert config.rope_theta == GLOBAL.theta
    assert (config.attention[0].soft_cap, config.final_logit_softcapping) == (0.0, 0.0)
    assert config.attention[0].qk_norm == "per_head"


def test_gemma3_caps_logits_but_not_attention_scores(tmp_path: Path) -> None:
    # Gemma3Attention of transformers 5.23 reads attn_logit_softcapping and never uses it.
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.5}

    config = _read(tmp_path, caps, base="gemma3_text")

    assert (config.attention[0].soft_cap, config.final_logit_softcapping) == (0.0, 1.5)


def test_gemma3_reads_the_rope_format_of_transformers_5(tmp_path: Path) -> None:
    per_layer_type = {
        "full_attention": {"rope_type": "linear", "rope_theta": 20000.0, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
    }
    old = ("rope_theta", "rope_local_base_freq", "rope_scaling")

    changes = {"rope_parameters": per_layer_type}
    config = _read(tmp_path, changes, base="gemma3_text", without=old)

    assert config == _read(tmp_path, {}, base="gemma3_text")
    plain = _read(tmp_path, {}, base="gemma3_text", without=old)
    assert ropes_of(plain)[:2] == (RopeConfig(theta=10000.0), RopeConfig(theta=1000000.0))


def test_a_window_as_long_as_the_context_keeps_the_local_rope(tmp_path: Path) -> None:
    config = _read(tmp_path, {"sliding_window": 512}, base="gemma3_text")

    assert config.windows == ()
    assert ropes_of(config) == (LOCAL, GLOBAL, LOCAL)


def test_gemma3_reads_its_text_config_with_the_defaults_of_transformers(tmp_path: Path) -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    values = {"model_type": "gemma3", "vision_config": {}, "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(values))

    config = read_description(tmp_path).config

    assert isinstance(config, DecoderConfig)
    sizes = (config.hidden_size, *config.cache_shape[1:])
    assert sizes == (2560, 8, 4, 256)
    assert config.vocab_size == 262208
    assert config.windows[4:7] == (4096, 0, 4096)
    assert decoder_parameters(config)[0].sources == ("language_model.model.embed_tokens.weight",)


def _write_mlc(directory: Path, model_type: str, text_config: dict[str, Any]) -> Path:
    """Write a config as MLC LLM's `gen_config` does: unknown fields are in `kwargs`."""
    known = "hidden_size intermediate_size num_hidden_layers num_attention_heads head_dim "
    known += "num_key_value_heads rms_norm_eps query_pre_attn_scalar"
    sizes = {"context_window_size": 8192, "sliding_window_size": 20, "prefill_chunk_size": 8192}
    inner = {name: text_config[name] for name in known.split()} | sizes
    inner["position_embedding_base"] = text_config["rope_theta"]
    inner["rope_scaling"] = text_config.get("rope_scaling") or 0
    taken = {*inner, "rope_theta"}
    inner["kwargs"] = {k: v for k, v in text_config.items() if k not in taken}
    values = {
        "model_type": model_type,
        "quantization": "q4f16_1",
        "model_config": {"text_config": inner, "vocab_size": text_config["vocab_size"], **sizes},
        **sizes,
    }
    (directory / "mlc-chat-config.json").write_text(json.dumps(values))
    return directory


@pytest.mark.parametrize("model_type", ["gemma3_text", "gemma3"])
@pytest.mark.parametrize("scaling", [TINY_CONFIGS["gemma3_text"]["rope_scaling"], None])
def test_gemma3_reads_mlcs_nested_config(
    tmp_path: Path, model_type: str, scaling: dict[str, Any] | None
) -> None:
    changes = {"rope_scaling": scaling, "max_position_embeddings": 8192}
    expected = _read(tmp_path, changes, base="gemma3_text")
    _write_mlc(tmp_path, model_type, TINY_CONFIGS["gemma3_text"] | changes)

    config = read_description(tmp_path).config

    expected = expected.with_attention(sees_whole_pieces=model_type == "gemma3")
    assert config == replace(expected, model_type=model_type)


def test_rope_table_stores_each_distinct_rope_once(tmp_path: Path) -> None:
    table = rope_table(_read(tmp_path, {}, base="gemma3_text"))

    assert table.layer_slices == ((0, 17), (17, 17), (0, 17))
    assert table.values[:17] == (*LOCAL.inverse_frequencies(32), 1.0)
    assert table.values[17:] == (*GLOBAL.inverse_frequencies(32), 1.0)


def test_a_job_survives_the_json_round_trip(tmp_path: Path) -> None:
    job = CompileJob(config=_read(tmp_path, {}, base="gemma3_text"), quantization="q0f32")

    assert CompileJob.from_json(json.loads(json.dumps(job.as_json()))) == job
