"""Configs of encoders, and the reports of invalid fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiomlc.compiler.job import CompileJob
from aiomlc.errors import ModelLoadError
from aiomlc.models import (
    BlockEncoderConfig,
    EncoderConfig,
    ModelConfig,
    encoder_parameters,
    read_description,
)
from tests.model.tiny_encoder import ENCODER_CONFIG, encoder_weights
from tests.model.tiny_encoders import CONFIGS, encoder_config, write_encoder
from tests.model.tiny_models import write_safetensors

EXPECTED = EncoderConfig(
    model_type="bert",
    vocab_size=90,
    hidden_size=48,
    intermediate_size=112,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_positions=64,
    num_token_types=2,
    layer_norm_eps=1e-12,
)


def test_a_hugging_face_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(ENCODER_CONFIG))

    assert read_description(tmp_path).config == EXPECTED


@pytest.mark.parametrize("model_type", ["bert", "bert-bge"])
def test_an_mlc_config_is_read(tmp_path: Path, model_type: str) -> None:
    inner = {k: v for k, v in ENCODER_CONFIG.items() if k != "max_position_embeddings"}
    content = {
        "model_type": model_type,
        "quantization": "q0f32",
        "model_config": {**inner, "context_window_size": 64},
    }
    (tmp_path / "mlc-chat-config.json").write_text(json.dumps(content))

    description = read_description(tmp_path)

    assert (description.config, description.quantization) == (EXPECTED, "q0f32")


def test_a_job_survives_the_json_round_trip() -> None:
    job = CompileJob(config=EXPECTED, quantization="q0f32")

    assert CompileJob.from_json(json.loads(json.dumps(job.as_json()))) == job


def test_encoder_parameters_use_every_tensor_once() -> None:
    sources = [source for p in encoder_parameters(EXPECTED) for source in p.sources]

    assert len(sources) == len(set(sources))
    assert set(sources) == set(encoder_weights())


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"hidden_act": "gelu_new"}, "hidden_act", 'must be "gelu", got "gelu_new"'),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type",
            'must be "absolute", got "relative_key"',
        ),
        ({"is_decoder": True}, "is_decoder", "must be false, got true"),
        ({"num_attention_heads": 5}, "num_attention_heads", r"hidden_size \(48\), got 5"),
        ({"quantization_config": {"bits": 4}}, "quantization_config", "already quantized weights"),
        ({"hidden_size": None}, "hidden_size", "is missing"),
    ],
)
def test_an_invalid_field_is_reported_with_its_file(
    tmp_path: Path, changes: dict[str, Any], field: str, problem: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(ENCODER_CONFIG | changes))

    with pytest.raises(ModelLoadError, match=problem) as caught:
        read_description(tmp_path)

    assert (caught.value.path, caught.value.field) == (tmp_path / "config.json", field)


def test_the_first_position_of_roberta_follows_that_of_the_padding(tmp_path: Path) -> None:
    values = ENCODER_CONFIG | {"model_type": "xlm-roberta", "pad_token_id": 1}
    (tmp_path / "config.json").write_text(json.dumps(values))

    config = read_description(tmp_path).config

    assert isinstance(config, EncoderConfig)
    assert (config.position_offset, config.max_tokens) == (2, 62)


@pytest.mark.parametrize(
    ("name", "changes", "field", "problem"),
    [
        ("mpnet", {"relative_attention_num_buckets": 16}, "relative_attention_num_buckets", "32"),
        ("mpnet", {"max_position_embeddings": 2}, "max_position_embeddings", "must be >= 3"),
        (
            "albert",
            {"num_hidden_groups": 6},
            "num_hidden_groups",
            r"num_hidden_layers \(5\), got 6",
        ),
        ("albert", {"inner_group_num": 17}, "inner_group_num", "must be <= 16, got 17"),
        ("albert", {"hidden_act": "relu"}, "hidden_act", 'must be one of "gelu", "gelu_new"'),
        ("deberta_v3", {"relative_attention": False}, "relative_attention", "true, got false"),
        ("deberta_v3", {"pos_att_type": "c2p"}, "pos_att_type", r"must be c2p\|p2c, got c2p"),
        ("deberta_v3", {"pos_att_type": None}, "pos_att_type", r"must be c2p\|p2c, but is missing"),
        ("deberta_v3", {"conv_kernel_size": 3}, "conv_kernel_size", "must be 0: a layer of conv"),
        ("deberta_v3", {"embedding_size": 24}, "embedding_size", r"hidden_size \(48\), got 24"),
        ("deberta_v3", {"attention_head_size": 16}, "attention_head_size", r"\(12\), got 16"),
        ("deberta_v3", {"position_buckets": 1}, "position_buckets", ">= 2 and at most"),
        ("deberta_v3", {"max_relative_positions": 5}, "position_buckets", r"\(5\) less 3, got 8"),
        ("deberta_v3_classifier", {"pooler_hidden_act": "tanh"}, "pooler_hidden_act", '"gelu"'),
        ("jina_bert", {"feed_forward_type": "original"}, "feed_forward_type", 'must be "geglu"'),
        ("jina_bert", {"feed_forward_type": None}, "feed_forward_type", 'must be "geglu"'),
        (
            "jina_bert",
            {"architectures": ["JinaBertForSequenceClassification"]},
            "architectures",
            "not supported with ALiBi",
        ),
        ("jina_embeddings_v3", {"hidden_act": "relu"}, "hidden_act", 'must be "gelu"'),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings", "must be >= 3"),
        ("roberta_classifier", {"id2label": []}, "id2label", "must be an object"),
        ("modernbert", {"hidden_activation": "silu"}, "hidden_activation", 'must be "gelu"'),
        ("modernbert", {"local_attention": 0}, "local_attention", "must be >= 1"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types", "one entry per layer"),
        (
            "modernbert_reranker",
            {"classifier_pooling": "max"},
            "classifier_pooling",
            'must be one of "cls", "mean"',
        ),
    ],
)
def test_an_invalid_field_of_another_family_is_reported(
    tmp_path: Path, name: str, changes: dict[str, Any], field: str, problem: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name] | changes))

    with pytest.raises(ModelLoadError, match=problem) as caught:
        read_description(tmp_path)

    assert caught.value.field == field


def test_layers_of_albert_share_their_weights() -> None:
    config = encoder_config("albert")

    assert isinstance(config, EncoderConfig)
    assert config.num_hidden_layers == 4
    # Three times the two layers of the first group, and twice those of the second.
    assert config.layers == (0, 1, 0, 1, 0, 1, 2, 3, 2, 3)
    prefixes = {config.names.of_layer(layer) for layer in range(config.num_hidden_layers)}
    group = "encoder.albert_layer_groups"
    assert prefixes == {f"{group}.{i}.albert_layers.{j}." for i in (0, 1) for j in (0, 1)}
    sources = [source for p in encoder_parameters(config) for source in p.sources]
    assert len(sources) == len(set(sources))


@pytest.mark.parametrize("name", ["jina_bert", "jina_bert_code"])
def test_the_norms_of_jina_bert_are_those_of_its_tensors(tmp_path: Path, name: str) -> None:
    directory = write_encoder(tmp_path / "model", name)
    values = {key: value for key, value in CONFIGS[name].items() if key != "has_more_norms"}

    assert read(directory, values) == encoder_config(name)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_job_of_each_family_survives_the_json_round_trip(name: str) -> None:
    job = CompileJob(config=encoder_config(name), quantization="q0f32")

    assert CompileJob.from_json(json.loads(json.dumps(job.as_json()))) == job


NOMIC_V1: dict[str, Any] = {
    "model_type": "nomic_bert",
    "architectures": ["NomicBertModel"],
    "vocab_size": 90,
    "n_embd": 48,
    "n_inner": 72,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "type_vocab_size": 2,
    "activation_function": "swiglu",
    "layer_norm_epsilon": 1e-12,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_scaling_factor": None,
    "max_trained_positions": 32,
}


def read(directory: Path, config: dict[str, Any]) -> ModelConfig:
    (directory / "config.json").write_text(json.dumps(config))
    return read_description(directory).config


def test_the_first_files_of_nomic_have_other_names_of_fields(tmp_path: Path) -> None:
    assert read(tmp_path, NOMIC_V1) == encoder_config("nomic_bert")


def test_a_growing_base_of_nomic_limits_the_inputs_to_those_of_the_training(tmp_path: Path) -> None:
    config = read(tmp_path, NOMIC_V1 | {"rotary_scaling_factor": 2})

    assert isinstance(config, EncoderConfig)
    assert config.max_tokens == 32


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("n_head", {"n_head": 5}, 'field "n_head" must divide'),
        ("moe_every_n_layers", {"moe_every_n_layers": 2}, "mixtures of experts are not"),
        ("prenorm", {"prenorm": True}, 'field "prenorm" must be false'),
        ("rotary_emb_fraction", {"rotary_emb_fraction": 0.5}, "must be 1, got 0.5"),
        ("activation_function", {"activation_function": "relu"}, 'field "activation_function"'),
    ],
)
def test_what_nomic_bert_does_not_support_is_refused_by_name(
    tmp_path: Path, name: str, change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        read(tmp_path, NOMIC_V1 | change)

    assert caught.value.field == name


def test_ntk_scaling_of_gte_has_the_formula_of_its_authors(tmp_path: Path) -> None:
    gte = CONFIGS["gte"] | {"model_type": "new", "rope_parameters": None, "rope_theta": 20000.0}
    config = read(tmp_path, gte | {"rope_scaling": {"type": "ntk", "factor": 8.0}})

    assert isinstance(config, EncoderConfig)
    assert config.rope is not None
    size = 12
    expected = [(20000.0 * 8) ** (-i / size) / 8 ** (2 / size) for i in range(0, size, 2)]
    assert config.rope.inverse_frequencies(size) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["bert_classifier", "distilbert", "nomic_bert", "gte", "eurobert"])
def test_the_tensors_of_an_encoder_may_have_the_prefix_of_a_model_with_a_head(
    tmp_path: Path, name: str
) -> None:
    prefix = {"distilbert": "distilbert.", "gte": "new.", "eurobert": "model."}.get(name, "bert.")
    values = CONFIGS[name] | {"architectures": ["ForMaskedLM"]}
    words = "embed_tokens" if name == "eurobert" else "embeddings.word_embeddings"
    found = []
    for each in ("", prefix):
        tensor = {f"{each}{words}.weight": np.zeros((90, 48), np.float32)}
        write_safetensors(tmp_path / "model.safetensors", tensor)
        config = read(tmp_path, values)
        assert isinstance(config, EncoderConfig | BlockEncoderConfig)
        found.append(config.hf_prefix)

    assert found == ["", prefix]
