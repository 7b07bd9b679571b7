"""Configs are read as transformers reads them; an invalid one is reported with file and field."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.models import (
    MODEL_TYPES,
    DecoderConfig,
    RopeConfig,
    decoder_parameters,
    read_description,
)
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights
from tests.unit.models.plans import rope_of
from tests.unit.models.read_decoder import read_decoder

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
# Computed by transformers 5.23 for heads of 32 dimensions.
FREQUENCIES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "default": (
        {"rope_type": "default", "rope_theta": 1e6},
        [
            1.0,
            0.4216965138912201,
            0.17782793939113617,
            0.07498941570520401,
            0.03162277862429619,
            0.01333521492779255,
            0.005623413249850273,
            0.0023713738191872835,
            0.0010000000474974513,
            0.00042169648804701865,
            0.00017782794020604342,
            7.498942431993783e-05,
            3.162277425872162e-05,
            1.333521413471317e-05,
            5.62341347176698e-06,
            2.3713737391517498e-06,
        ],
    ),
    "linear": (
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
        [
            0.25,
            0.14058533310890198,
            0.07905694097280502,
            0.04445698484778404,
            0.02500000037252903,
            0.014058532193303108,
            0.007905694656074047,
            0.004445698577910662,
            0.0024999999441206455,
            0.0014058533124625683,
            0.0007905694656074047,
            0.00044456985779106617,
            0.0002500000118743628,
            0.00014058532542549074,
            7.905694656074047e-05,
            4.4456985051510856e-05,
        ],
    ),
    "llama3": (
        LLAMA3,
        [
            1.0,
            0.44036662578582764,
            0.193922758102417,
            0.08539710193872452,
            0.03760603070259094,
            0.016560440883040428,
            0.00729266507551074,
            0.0032114461064338684,
            0.0005248460220173001,
            7.784655463183299e-05,
            3.428102354519069e-05,
            1.5096217794052791e-05,
            6.647869668086059e-06,
            2.927499735960737e-06,
            1.289173155782919e-06,
            5.677088097399974e-07,
        ],
    ),
}


def _read(
    directory: Path, changes: dict[str, Any], *, base: str = "llama", without: tuple[str, ...] = ()
) -> DecoderConfig:
    return read_decoder(
        directory, {k: v for k, v in TINY_CONFIGS[base].items() if k not in without} | changes
    )


def test_reading_configs_does_not_import_tvm() -> None:
    code = "import sys, aiomlc.compiler, aiomlc.models; assert 'tvm' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_documentation_lists_every_decoder() -> None:
    page = (Path(__file__).parents[4] / "docs" / "models.md").read_text()

    missing = [name for name in MODEL_TYPES if name != "bert" and f"`{name}`" not in page]

    assert missing == []


def test_every_decoder_type_has_a_tiny_config() -> None:
    tiny = {config["model_type"] for config in TINY_CONFIGS.values()}

    # The encoders have configs of their own; the others have the decoders of their text models.
    encoders = {"bert", "bert-bge", "modernbert", "roberta", "xlm-roberta"}
    encoders |= {"distilbert", "eurobert", "gte", "new", "nomic_bert"}
    encoders |= {"albert", "camembert", "deberta-v2", "electra", "jina_embeddings_v3", "mpnet"}
    encoders |= {"clip", "siglip"}
    others = {*encoders, "gemma3", "gemma3n", "gemma4", "qwen3_5", "qwen3_5_moe"}
    others |= {"gemma4_unified", "gemma4_unified_text", "qwen2_5_vl", "qwen2_vl", "qwen3_vl"}
    others |= {"idefics3", "internvl", "llava", "llava_next", "mistral3", "smolvlm"}
    others |= {"qwen3_vl_moe", "qwen3_asr", "whisper"}
    assert set(MODEL_TYPES) == tiny | others


@pytest.mark.parametrize(
    "architecture", [n for n in TINY_CONFIGS if n not in ("gemma4_moe", "gpt_oss")]
)
def test_decoder_parameters_use_every_tensor_once(tmp_path: Path, architecture: str) -> None:
    config = _read(tmp_path, {}, base=architecture)
    weights = tiny_weights(architecture)
    parameters = decoder_parameters(config)

    sources = [source for parameter in parameters for source in parameter.sources]

    assert sorted(sources) == sorted(weights)
    for parameter in parameters:
        if parameter.name.endswith(("conv.weight", "conv_weight")):
            assert parameter.shape == (weights[parameter.sources[0]].size,)
            continue

        rows = sum(weights[source].shape[0] for source in parameter.sources)
        assert parameter.shape == (rows, *weights[parameter.sources[0]].shape[1:])


def test_parameters_have_mlc_names(tmp_path: Path) -> None:
    names = {p.mlc_name for p in decoder_parameters(_read(tmp_path, {}, base="phi3"))}

    assert {name for name in names if ".h.1." not in name} == {
        "transformer.embd",
        "transformer.h.0.ln.weight",
        "transformer.h.0.mixer.qkv_proj",
        "transformer.h.0.mixer.out_proj",
        "transformer.h.0.post_attention_layernorm.weight",
        "transformer.h.0.mlp.gate_up_proj",
        "transformer.h.0.mlp.down_proj",
        "transformer.norm.weight",
        "lm_head",
    }


@pytest.mark.parametrize("rope_type", FREQUENCIES)
@pytest.mark.parametrize("field", ["rope_parameters", "rope_scaling"])
def test_inverse_frequencies_match_transformers(tmp_path: Path, rope_type: str, field: str) -> None:
    settings, expected = FREQUENCIES[rope_type]
    scaling = {k: v for k, v in settings.items() if k != "rope_theta"}
    changes: dict[str, Any] = (
        {"rope_parameters": settings}
        if field == "rope_parameters"
        else {
            "rope_scaling": scaling if rope_type != "default" else None,
            "rope_theta": settings["rope_theta"],
        }
    )

    config = _read(tmp_path, changes, without=("rope_parameters",))

    assert rope_of(config).inverse_frequencies(32) == pytest.approx(expected, rel=4e-7)


def test_rope_scaling_may_use_the_key_type(tmp_path: Path) -> None:
    changes = {"rope_scaling": {"type": "linear", "factor": 2.0}}

    config = _read(tmp_path, changes, without=("rope_parameters",))

    assert rope_of(config) == RopeConfig("linear", 10000.0, 2.0)


def test_an_mlc_config_equals_the_hugging_face_config_it_was_converted_from(tmp_path: Path) -> None:
    expected = _read(tmp_path, {}, base="qwen2")
    inner = {k: v for k, v in TINY_CONFIGS["qwen2"].items() if k != "max_position_embeddings"}
    theta = inner.pop("rope_theta")
    outer = {
        "model_type": "qwen2",
        "quantization": "q4f16_1",
        "context_window_size": 512,
        "sliding_window_size": -1,
        "model_config": inner | {"position_embedding_base": int(theta), "head_dim": 0},
    }
    (tmp_path / "mlc-chat-config.json").write_text(json.dumps(outer))

    description = read_description(tmp_path)

    assert description.config == expected
    assert description.quantization == "q4f16_1"
    assert description.path == tmp_path / "mlc-chat-config.json"


def test_families_differ_in_biases_and_norms(tmp_path: Path) -> None:
    def switches(config: DecoderConfig) -> tuple[bool, bool, bool]:
        attention = config.attention[0]
        return attention.qkv_bias, attention.output_bias, attention.qk_norm != "none"

    assert switches(_read(tmp_path, {})) == (False, False, False)
    assert switches(_read(tmp_path, {"attention_bias": True})) == (True, True, False)
    assert switches(_read(tmp_path, {}, base="qwen2")) == (True, False, False)
    assert switches(_read(tmp_path, {}, base="qwen3")) == (False, False, True)


def test_granite_scales_the_embedding_instead_of_the_updates(tmp_path: Path) -> None:
    config = _read(tmp_path, {"residual_multiplier": 0.5, "logits_scaling": 8}, base="granite")

    assert (config.embedding_scale, config.norm_eps) == (24.0, 4e-5)
    assert (config.attention[0].scale, config.logit_scale) == (0.1, 0.125)


def test_missing_head_dim_is_derived_or_the_family_default(tmp_path: Path) -> None:
    assert _read(tmp_path, {}, without=("head_dim",)).cache_shape.head_dim == 16
    assert _read(tmp_path, {}, base="qwen3", without=("head_dim",)).cache_shape.head_dim == 128


@pytest.mark.parametrize(
    ("base", "changes", "windows"),
    [
        ("mistral", {"sliding_window": 100}, (100, 100)),
        ("mistral", {"sliding_window": None}, ()),
        ("mistral", {"sliding_window": -1}, ()),
        ("mistral", {"sliding_window": 512}, ()),  # Equal to the context length.
        ("llama", {"sliding_window": 100}, ()),
        ("llama", {"sliding_window_size": 100}, (100, 100, 100)),
        ("mistral", {"sliding_window": 100, "sliding_window_size": -1}, ()),
        ("qwen2", {"sliding_window": 64}, ()),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": False}, ()),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": True}, ()),  # From layer 28 on.
        (
            "qwen2",
            {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 1},
            (0, 64),
        ),
        (
            "qwen3",
            {
                "sliding_window": 64,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            (64, 0),
        ),
    ],
)
def test_windows_match_transformers_and_keep_the_context_length(
    tmp_path: Path, base: str, changes: dict[str, Any], windows: tuple[int, ...]
) -> None:
    config = _read(tmp_path, changes, base=base)

    assert config.windows == windows
    assert config.context_window_size == 512


def test_attention_sinks_require_a_window(tmp_path: Path) -> None:
    sinks = {"attention_sink_size": 4}

    assert _read(tmp_path, {"sliding_window": 100}, base="mistral").attention[0].sinks == 0
    windowed = _read(tmp_path, sinks | {"sliding_window": 100}, base="mistral")
    assert windowed.attention[0].sinks == 4
    assert _read(tmp_path, sinks, base="mistral").attention[0].sinks == 0


@pytest.mark.parametrize(("trained", "context"), [(None, 32768), (2048, 2048)])
def test_unlimited_context_with_a_window_gets_a_limit(
    tmp_path: Path, trained: int | None, context: int
) -> None:
    changes = {
        "context_window_size": -1,
        "sliding_window_size": 100,
        "max_position_embeddings": trained,
    }

    config = _read(tmp_path, changes, base="mistral")

    assert config.context_window_size == context
    assert config.windows == (100, 100)


@pytest.mark.parametrize(
    ("architecture", "size", "sinks", "expected"),
    [
        ("mistral", None, None, ((), 0)),
        ("mistral", 30, None, ((30, 30), 0)),
        ("mistral", 30, 4, ((30, 30), 4)),
        ("mistral", 512, 4, ((), 0)),
        ("mistral_window", None, 4, ((24, 24), 4)),
        ("mistral_window", -1, None, ((), 0)),
        ("qwen2_window", 30, -1, ((0, 30), 0)),
    ],
)
def test_with_window_replaces_the_windows_of_the_model(
    tmp_path: Path,
    architecture: str,
    size: int | None,
    sinks: int | None,
    expected: tuple[tuple[int, ...], int],
) -> None:
    config = _read(tmp_path, {}, base=architecture).with_window(size, sinks)

    sizes, expected_sinks = expected
    assert config.windows == sizes
    assert [layer.sinks for layer in config.attention] == [
        expected_sinks if window else 0 for window in sizes or (0,) * len(config.layers)
    ]


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        (
            {"model_type": "mamba"},
            "model_type",
            f'is "mamba": not supported; supported are {", ".join(MODEL_TYPES)}',
        ),
        ({"model_type": None}, "model_type", "is missing"),
        ({"hidden_size": None}, "hidden_size", "is missing"),
        ({"hidden_size": "64"}, "hidden_size", 'must be an integer, got "64"'),
        ({"hidden_size": True}, "hidden_size", "must be an integer, got true"),
        ({"vocab_size": 0}, "vocab_size", "must be >= 1, got 0"),
        ({"rms_norm_eps": -1}, "rms_norm_eps", "must be a positive number, got -1"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings", 'must be true or false, got "yes"'),
        ({"num_key_value_heads": 3}, "num_key_value_heads", r"num_attention_heads \(4\), got 3"),
        ({"head_dim": 15}, "head_dim", "must be even, got 15"),
        (
            {"head_dim": None, "hidden_size": 66},
            "num_attention_heads",
            r"must divide hidden_size \(66\), got 4",
        ),
        ({"hidden_act": "gelu"}, "hidden_act", 'must be "silu", got "gelu"'),
        ({"mlp_bias": 1}, "mlp_bias", "must be true or false, got 1"),
        ({"sliding_window_size": -2}, "sliding_window_size", "must be >= -1, got -2"),
        (
            {"attention_sink_size": "4", "sliding_window_size": 9},
            "attention_sink_size",
            'must be an integer, got "4"',
        ),
        ({"context_window_size": -1}, "context_window_size", "must be >= 1, got -1"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor", "must be 1.0, got 0.5"),
        ({"rope_parameters": []}, "rope_parameters", r"must be an object, got \[\]"),
        ({"rope_parameters": {"rope_type": "mrope"}}, "rope_parameters.rope_type", 'got "mrope"'),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters.factor", "is missing"),
        (
            {"rope_parameters": LLAMA3 | {"high_freq_factor": 1.0}},
            "rope_parameters.high_freq_factor",
            r"must be > low_freq_factor \(1.0\), got 1.0",
        ),
    ],
)
def test_an_invalid_field_is_reported_with_its_file(
    tmp_path: Path, changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        _read(tmp_path, changes)

    assert caught.value.path == tmp_path / "config.json"
    assert caught.value.field == field
    assert f'config.json: field "{field}"' in str(caught.value)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]"])
def test_a_file_that_is_not_a_json_object_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)

    with pytest.raises(ModelLoadError, match=r"config\.json") as caught:
        read_description(tmp_path)

    assert caught.value.path == tmp_path / "config.json"


def test_a_directory_without_a_config_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="neither") as caught:
        read_description(tmp_path)

    assert caught.value.path == tmp_path
