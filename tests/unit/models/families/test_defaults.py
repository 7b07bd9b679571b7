"""Fields that a config omits have the defaults of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiomlc.models import DecoderConfig, read_description
from aiomlc.models.registry import MODEL_TYPES
from tests.model.tiny_models import TINY_CONFIGS
from tests.model.transformers_defaults import DEFAULTS, Defaults

ENCODERS = {"bert", "bert-bge"}
OMITTED = {
    "layer_norm_eps",
    "norm_eps",
    "norm_epsilon",
    "position_embedding_base",
    "residual_multiplier",  # It changes the epsilon.
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rotary_emb_base",
    "tie_word_embeddings",
}


def _read_with_defaults(directory: Path, model_type: str) -> DecoderConfig:
    base = TINY_CONFIGS[model_type]
    values = {name: value for name, value in base.items() if name not in OMITTED}
    (directory / "config.json").write_text(json.dumps(values))
    config = read_description(directory).config
    assert isinstance(config, DecoderConfig)
    return config


def test_the_table_of_defaults_has_every_decoder() -> None:
    assert DEFAULTS.keys() | ENCODERS | {"gemma3"} == MODEL_TYPES.keys()


@pytest.mark.parametrize(("model_type", "expected"), DEFAULTS.items(), ids=DEFAULTS)
def test_omitted_fields_have_the_defaults_of_transformers(
    tmp_path: Path, model_type: str, expected: Defaults
) -> None:
    config = _read_with_defaults(tmp_path, model_type)

    assert config.norm_eps == expected.norm_eps
    assert config.rope.theta == expected.rope_theta
    assert config.tie_word_embeddings == expected.tie_word_embeddings
