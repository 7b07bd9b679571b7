"""Configs of models that read images: towers, names of tensors, defaults, and typed errors."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc import ModelLoadError
from aiomlc.models import DecoderConfig, VisionConfig, read_description
from aiomlc.models.config.fields import Fields
from aiomlc.models.registry import MODEL_TYPES, VISION_TYPES
from tests.model.tiny_vision import CONFIGS
from tests.unit.models.config.test_limits import WRONG, _changed, _paths

PATH = Path("config.json")
# As `llava-hf/llava-1.5-7b-hf` has it.
LLAVA: dict[str, Any] = {
    "architectures": ["LlavaForConditionalGeneration"],
    "image_token_index": 32000,
    "model_type": "llava",
    "projector_hidden_act": "gelu",
    "text_config": {
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 4096,
        "model_type": "llama",
        "rms_norm_eps": 1e-05,
        "vocab_size": 32064,
    },
    "tie_word_embeddings": False,
    "vision_config": {
        "hidden_size": 1024,
        "image_size": 336,
        "intermediate_size": 4096,
        "model_type": "clip_vision_model",
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
    },
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_wrong_value_of_any_field_is_a_typed_error_or_harmless(name: str) -> None:
    config = CONFIGS[name]
    parse = VISION_TYPES[config["model_type"]]
    errors = []
    for location, value in itertools.product(_paths(config), WRONG):
        fields = Fields(_changed(config, location, value), PATH)
        for read in (parse, MODEL_TYPES[config["model_type"]]):
            try:
                read(fields)
            except ModelLoadError as error:
                errors.append(error)

    assert errors
    assert all(error.path == PATH and error.field for error in errors)
    longest = 300 + len(", ".join(MODEL_TYPES))  # An unknown type is answered with all of them.
    assert max(len(str(error)) for error in errors) < longest


def test_older_configs_rely_on_the_defaults_of_their_decoder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAVA))

    description = read_description(tmp_path)

    config, vision = description.config, description.tower
    assert isinstance(config, DecoderConfig)
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (4096, 32, 32064)
    assert isinstance(vision, VisionConfig)
    assert (vision.num_hidden_layers, vision.num_positions, vision.embedded_size) == (23, 577, 4096)
    assert vision.activation == "quick_gelu"


@pytest.mark.parametrize(
    ("name", "stored", "expected"),
    [
        ("llava", "language_model.model.norm.weight", "model.norm.weight"),
        ("llava", "language_model.lm_head.weight", "lm_head.weight"),
        ("llava", "model.language_model.norm.weight", "model.norm.weight"),
        ("llava", "vision_tower.vision_model.pre_layrnorm.bias", "vision_tower.pre_layrnorm.bias"),
        ("llava", "model.vision_tower.pre_layrnorm.bias", "vision_tower.pre_layrnorm.bias"),
        ("llava_next", "model.image_newline", "image_newline"),
        ("idefics3", "model.text_model.norm.weight", "model.norm.weight"),
        ("idefics3", "model.vision_model.post_layernorm.bias", "vision_tower.post_layernorm.bias"),
        ("mistral3", "vision_tower.ln_pre.weight", "vision_tower.ln_pre.weight"),
    ],
)
def test_tensors_of_every_layout_have_one_name(name: str, stored: str, expected: str) -> None:
    vision = VISION_TYPES[CONFIGS[name]["model_type"]](Fields(CONFIGS[name], PATH))

    assert vision is not None
    assert vision.renamed(stored) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vision_feature_layer": -25}, r"vision_feature_layer\" must be between -24 and 24, got"),
        ({"vision_feature_layer": [-2, -5]}, r"vision_feature_layer\" must be an integer"),
        ({"projector_hidden_act": "relu"}, r"projector_hidden_act\" must be \"gelu\""),
        (
            {"vision_config": LLAVA["vision_config"] | {"model_type": "dinov2"}},
            r"vision_config.model_type\" is \"dinov2\": this tower is not supported",
        ),
        (
            {"vision_config": LLAVA["vision_config"] | {"patch_size": 400}},
            r"vision_config.patch_size\" must be at most the image_size, 336, got 400",
        ),
        ({"text_config": {"model_type": "mamba"}}, r"text_config.model_type\" is \"mamba\""),
    ],
)
def test_unsupported_towers_are_refused_by_field(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAVA | changes))

    with pytest.raises(ModelLoadError, match=message):
        read_description(tmp_path)
