"""Fields that a config omits have the defaults of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc.models import DecoderConfig
from aiomlc.models.registry import MODEL_TYPES
from tests.model.tiny_models import TINY_CONFIGS
from tests.model.transformers_defaults import DEFAULTS, Defaults
from tests.unit.models.plans import ropes_of
from tests.unit.models.read_decoder import read_decoder

ENCODERS = {
    *("bert", "bert-bge", "distilbert", "eurobert", "gte", "modernbert", "new", "nomic_bert"),
    *("camembert", "electra", "jina_embeddings_v3", "mpnet", "roberta", "xlm-roberta"),
    *("albert", "clip", "deberta-v2", "siglip"),
}
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
    "sliding_window",
    "tie_word_embeddings",
}


SPEECH = {"qwen3_asr", "whisper"}
MULTIMODAL = {
    "gemma3",
    "gemma3n",
    "gemma4",
    "gemma4_unified",
    "idefics3",
    "internvl",
    "llava",
    "llava_next",
    "mistral3",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
    "smolvlm",
}  # With the decoders of their text models.


def _read_with_defaults(directory: Path, model_type: str, **changes: object) -> DecoderConfig:
    base = TINY_CONFIGS[model_type.replace("_unified", "")] | {"model_type": model_type}
    values = {name: value for name, value in base.items() if name not in OMITTED}
    return read_decoder(directory, values | changes)


def test_the_table_of_defaults_has_every_decoder() -> None:
    assert DEFAULTS.keys() | ENCODERS | MULTIMODAL | SPEECH == MODEL_TYPES.keys()


@pytest.mark.parametrize(("model_type", "expected"), DEFAULTS.items(), ids=DEFAULTS)
def test_omitted_fields_have_the_defaults_of_transformers(
    tmp_path: Path, model_type: str, expected: Defaults
) -> None:
    config = _read_with_defaults(tmp_path, model_type)

    assert config.norm_eps == expected.norm_eps
    assert config.rope_theta == expected.rope_theta
    assert config.tie_word_embeddings == expected.tie_word_embeddings


@pytest.mark.parametrize(("model_type", "expected"), DEFAULTS.items(), ids=DEFAULTS)
def test_an_omitted_window_has_the_size_of_transformers(
    tmp_path: Path, model_type: str, expected: Defaults
) -> None:
    changes: dict[str, object] = {"max_position_embeddings": 8192}
    if model_type.startswith("qwen"):
        changes |= {"use_sliding_window": True, "max_window_layers": 0}
    if model_type == "qwen2_moe":
        changes["layer_types"] = ["sliding_attention"] * 4
    if model_type == "exaone4":
        changes["layer_types"] = ["sliding_attention", "full_attention"]
    config = _read_with_defaults(tmp_path, model_type, **changes)

    assert max(config.windows, default=0) == (expected.sliding_window or 0)
    null = _read_with_defaults(tmp_path, model_type, **changes, sliding_window=None)
    assert max(null.windows, default=0) == 0


def test_exaone4_without_the_field_rotates_only_layers_with_the_default_window(
    tmp_path: Path,
) -> None:
    config = _read_with_defaults(
        tmp_path, "exaone4", num_hidden_layers=4, max_position_embeddings=8192, layer_types=None
    )

    assert config.windows == (4096, 4096, 4096, 0)
    assert [rope is not None for rope in ropes_of(config)] == [True, True, True, False]
    null = _read_with_defaults(tmp_path, "exaone4", sliding_window=None)
    assert null.windows == ()
    assert None not in ropes_of(null)


def test_mistral_in_mlc_format_has_no_default_window(tmp_path: Path) -> None:
    config = _read_with_defaults(tmp_path, "mistral", context_window_size=8192)

    assert config.windows == ()
