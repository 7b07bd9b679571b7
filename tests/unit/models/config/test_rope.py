"""RoPE matches transformers, and an invalid setting is reported with its field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aiomlc.compiler.job import CompileJob
from aiomlc.errors import ModelLoadError
from aiomlc.models import DecoderConfig
from tests.model.tiny_models import TINY_CONFIGS
from tests.unit.models.plans import rope_of
from tests.unit.models.read_decoder import read_decoder

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
PAIR_FACTORS = {
    "short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.5],
    "long_factor": [1.1, 1.3, 1.7, 2.5, 4.0, 7.0],
}


@dataclass(frozen=True)
class RopeCase:
    name: str
    base: str
    changes: dict[str, Any]
    frequencies: list[float]
    attention_factor: float


# Computed by transformers 5.23 for 512 positions and heads of 16 dimensions.
ROPE_CASES = [
    RopeCase(
        "yarn",
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1000000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            }
        },
        [
            1.0,
            0.11114246398210526,
            0.007905694656074047,
            0.0014058533124625683,
            0.0002500000118743628,
            4.4456985051510856e-05,
            7.905693564680405e-06,
            1.405853367941745e-06,
        ],
        1.138629436111989,
    ),
    RopeCase(
        "yarn_with_mscale",
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 40.0,
                "beta_fast": 16,
                "beta_slow": 2,
                "mscale": 1.0,
                "mscale_all_dim": 0.7,
                "original_max_position_embeddings": 4096,
            }
        },
        [
            1.0,
            0.3162277638912201,
            0.10000000149011612,
            0.03162277862429619,
            0.006749999243766069,
            0.0011067971354350448,
            2.499999936844688e-05,
            7.905694474175107e-06,
        ],
        1.0879546075066122,
    ),
    RopeCase(
        "yarn_not_truncated",
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 150000.0,
                "factor": 32.0,
                "attention_factor": 1.25,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            }
        },
        [
            1.0,
            0.22541800141334534,
            0.05081327259540558,
            0.006794959306716919,
            0.0004564839182421565,
            1.818833698052913e-05,
            4.099978468730114e-06,
            9.242089618055616e-07,
        ],
        1.25,
    ),
    RopeCase(
        "longrope",
        "phi3",
        {
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75,
                **PAIR_FACTORS,
            },
            "original_max_position_embeddings": 64,
        },
        [
            0.9090908765792847,
            0.1657257378101349,
            0.027303459122776985,
            0.004000000189989805,
            0.0005386085831560194,
            6.630842108279467e-05,
        ],
        1.224744871391589,
    ),
    RopeCase(
        "longrope_within_original_context",
        "phi3",
        {
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75,
                "factor": 4.0,
                **PAIR_FACTORS,
            },
            "original_max_position_embeddings": 512,
        },
        [
            1.0,
            0.20518426597118378,
            0.042196255177259445,
            0.00833333283662796,
            0.0016572573222219944,
            0.00030943931778892875,
        ],
        1.1055415967851334,
    ),
    RopeCase(
        "partial",
        "phi3",
        {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            }
        },
        [1.0, 0.10000000149011612, 0.009999999776482582, 0.0010000000474974513],
        1.0,
    ),
    RopeCase(
        "dynamic",
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}},
        [
            1.0,
            0.3162277638912201,
            0.10000000149011612,
            0.03162277862429619,
            0.009999999776482582,
            0.003162277862429619,
            0.0010000000474974513,
            0.0003162277862429619,
        ],
        1.0,
    ),
]
LONGROPE = next(case.changes for case in ROPE_CASES if case.name == "longrope")
LONG_SETTINGS = LONGROPE["rope_parameters"]


def _read(directory: Path, base: str, changes: dict[str, Any]) -> DecoderConfig:
    values = {k: v for k, v in TINY_CONFIGS[base].items() if not k.startswith("rope_")}
    return read_decoder(directory, values | SIZES | changes)


@pytest.mark.parametrize("case", ROPE_CASES, ids=lambda case: case.name)
def test_rope_matches_transformers(tmp_path: Path, case: RopeCase) -> None:
    rope = rope_of(_read(tmp_path, case.base, case.changes))

    assert rope.inverse_frequencies(16) == pytest.approx(case.frequencies, rel=4e-7)
    assert rope.attention_factor == pytest.approx(case.attention_factor)


@pytest.mark.parametrize("case", ROPE_CASES, ids=lambda case: case.name)
def test_rope_survives_the_json_round_trip_of_a_job(tmp_path: Path, case: RopeCase) -> None:
    job = CompileJob(config=_read(tmp_path, case.base, case.changes), quantization="q4f16_1")

    assert CompileJob.from_json(json.loads(json.dumps(job.as_json()))) == job


@pytest.mark.parametrize("rope_type", ["su", "yarn"])
def test_early_names_of_longrope_are_accepted(tmp_path: Path, rope_type: str) -> None:
    expected = _read(tmp_path, "phi3", LONGROPE)
    outer = {"rope_theta": 1e4, "partial_rotary_factor": 0.75}
    early = {
        "rope_scaling": {"type": rope_type, **PAIR_FACTORS},
        "original_max_position_embeddings": 64,
    }

    assert _read(tmp_path, "phi3", outer | early) == expected


@pytest.mark.parametrize(
    ("tokens", "is_long"), [(None, True), (512, True), (65, True), (64, False)]
)
def test_max_sequence_length_selects_short_or_long_factors(
    tmp_path: Path, tokens: int | None, is_long: bool
) -> None:
    config = _read(tmp_path, "phi3", LONGROPE)

    rope = rope_of(config.within(tokens))

    factors = PAIR_FACTORS["long_factor" if is_long else "short_factor"]
    plain = [1e4 ** (-i / 6) for i in range(6)]
    assert rope.inverse_frequencies(16) == pytest.approx(
        [frequency / factor for frequency, factor in zip(plain, factors, strict=True)]
    )
    assert rope.attention_factor == rope_of(config).attention_factor


def test_max_sequence_length_beyond_the_context_changes_nothing(tmp_path: Path) -> None:
    config = _read(tmp_path, "phi3", LONGROPE | {"original_max_position_embeddings": 512})

    assert config.within(4096) == config


@pytest.mark.parametrize(
    ("base", "changes", "field", "problem"),
    [
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor", "must be 1.0, got 0.5"),
        ("phi3", {"partial_rotary_factor": 0.1}, "partial_rotary_factor", "16 dimensions, got 0.1"),
        ("phi3", {"partial_rotary_factor": 1.5}, "partial_rotary_factor", "16 dimensions, got 1.5"),
        (
            "phi3",
            {"rope_parameters": LONG_SETTINGS | {"short_factor": [1.0]}},
            "rope_parameters.short_factor",
            "must have 6 numbers, .* got 1",
        ),
        (
            "phi3",
            {"rope_parameters": LONG_SETTINGS | {"long_factor": [1.0, "2"]}},
            "rope_parameters.long_factor",
            "must be a list of positive numbers",
        ),
        (
            "llama",
            {"rope_scaling": {"type": "longrope", "factor": 2.0}},
            "rope_scaling.type",
            'is "longrope", which requires "long_factor"',
        ),
        ("llama", {"rope_scaling": {"type": "yarn"}}, "rope_scaling.factor", "is missing"),
        (
            "llama",
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "context_window_size": 1024},
            "rope_scaling.type",
            "above max_position_embeddings",
        ),
    ],
)
def test_an_invalid_rope_setting_is_reported_with_its_field(
    tmp_path: Path, base: str, changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        _read(tmp_path, base, changes)

    assert caught.value.field == field


# In transformers 5.23, convert_rope_params_to_dict of modeling_rope_utils takes rope_scaling if it
# is not empty, and then the default rope_theta: ignoring either would change the model silently.
DEFAULT = {"rope_type": "default", "rope_theta": 1e6}
LINEAR = {"rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize(
    ("base", "parameters", "scaling"),
    [
        ("llama", LINEAR | {"rope_theta": 1e6}, LINEAR),
        ("llama", LINEAR | {"rope_theta": 1e6}, {"type": "linear", "factor": 4}),
        ("llama", DEFAULT, {"rope_type": "dynamic", "factor": 2.0}),
        ("llama", DEFAULT, {}),
        ("llama", DEFAULT, None),
        ("phi3", LONG_SETTINGS, {"type": "su", **PAIR_FACTORS}),
        (
            "gemma3_text",
            {"full_attention": LINEAR | {"rope_theta": 1e6}, "sliding_attention": DEFAULT},
            LINEAR,
        ),
        ("olmo3", {"full_attention": LINEAR, "sliding_attention": DEFAULT}, LINEAR),
    ],
)
def test_equal_settings_in_both_formats_are_accepted(
    tmp_path: Path, base: str, parameters: dict[str, Any], scaling: dict[str, Any] | None
) -> None:
    changes = {"rope_parameters": parameters, "original_max_position_embeddings": 64}
    expected = _read(tmp_path, base, changes)

    assert _read(tmp_path, base, changes | {"rope_scaling": scaling}) == expected


def test_an_empty_rope_parameters_leaves_rope_scaling_in_force(tmp_path: Path) -> None:
    changes = {"rope_theta": 1e6, "rope_scaling": LINEAR}

    assert _read(tmp_path, "llama", changes | {"rope_parameters": {}}) == _read(
        tmp_path, "llama", changes
    )


@pytest.mark.parametrize(
    ("base", "parameters", "scaling", "difference"),
    [
        ("llama", DEFAULT, LINEAR, 'rope_type ("linear" and "default"), factor (4.0 and 1.0)'),
        ("llama", LINEAR, DEFAULT, 'rope_type ("default" and "linear")'),
        ("llama", LINEAR, LINEAR | {"factor": 8.0}, "factor (8.0 and 4.0)"),
        ("llama", LINEAR, LINEAR | {"rope_theta": 5e5}, "theta (500000.0 and 10000.0)"),
        ("qwen3", DEFAULT, {"rope_type": "yarn", "factor": 4.0}, 'rope_type ("yarn" and'),
        (
            "gemma3_text",
            {"full_attention": DEFAULT, "sliding_attention": DEFAULT},
            LINEAR,
            'rope_type ("linear" and "default")',
        ),
    ],
)
def test_rope_scaling_that_disagrees_with_rope_parameters_is_refused(
    tmp_path: Path,
    base: str,
    parameters: dict[str, Any],
    scaling: dict[str, Any],
    difference: str,
) -> None:
    with pytest.raises(
        ModelLoadError, match='"rope_scaling" must agree with "rope_param'
    ) as caught:
        _read(tmp_path, base, {"rope_parameters": parameters, "rope_scaling": scaling})

    assert caught.value.field == "rope_scaling"
    assert difference in str(caught.value)
