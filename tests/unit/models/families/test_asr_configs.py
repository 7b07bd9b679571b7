"""The configs of Qwen 3 ASR: both formats, their sizes and names, and wrong fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models import AudioConfig, DecoderConfig, ModelDescription, read_description
from aiomlc.runtime.speech.generation import ChunkFeatures, read_chunk_features
from tests.model.tiny_asr import ASR_CONFIG, write_original_asr


def _read(directory: Path, audio: dict[str, Any], **changes: object) -> ModelDescription:
    config = ASR_CONFIG | {"audio_config": ASR_CONFIG["audio_config"] | audio} | changes
    (directory / "config.json").write_text(json.dumps(config))
    return read_description(directory)


def _tower(description: ModelDescription) -> AudioConfig:
    assert isinstance(description.tower, AudioConfig)
    return description.tower


def test_the_tower_of_a_config_has_its_sizes(tmp_path: Path) -> None:
    tower = _tower(_read(tmp_path, {}))

    assert (tower.chunk_frames, tower.window_chunks, tower.chunk_rows) == (100, 2, 13)
    assert (tower.conv_frames, tower.conv_bands) == ((100, 50, 25, 13), (128, 64, 32, 16))
    assert (tower.num_heads, tower.head_dim, tower.embedded_size) == (3, 16, 64)


def test_transformers_names_of_the_sizes_count_as_well(tmp_path: Path) -> None:
    audio = {"encoder_layers": None, "num_hidden_layers": 4, "d_model": None, "hidden_size": 96}
    tower = _tower(_read(tmp_path, audio))

    assert (tower.num_hidden_layers, tower.hidden_size) == (4, 96)


def test_the_format_of_the_authors_is_the_same_model(tmp_path: Path) -> None:
    first = _read(tmp_path, {})
    other = read_description(write_original_asr(tmp_path / "original"))

    assert _tower(other) == _tower(first)
    assert isinstance(other.config, DecoderConfig)
    assert other.config == first.config


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.language_model.norm.weight", "model.norm.weight"),
        ("thinker.model.norm.weight", "model.norm.weight"),
        ("thinker.lm_head.weight", "lm_head.weight"),
        ("model.audio_tower.ln_post.bias", "audio_tower.ln_post.bias"),
        ("thinker.audio_tower.proj2.bias", "multi_modal_projector.linear_2.bias"),
        ("model.multi_modal_projector.linear_1.bias", "multi_modal_projector.linear_1.bias"),
    ],
)
def test_tensors_of_both_formats_have_one_name(tmp_path: Path, name: str, expected: str) -> None:
    assert _tower(_read(tmp_path, {})).renamed(name) == expected


@pytest.mark.parametrize(
    ("audio", "field", "message"),
    [
        ({"n_window": 100}, "n_window", "must give a chunk 13 rows, as 50 does, got 100"),
        ({"n_window_infer": 250}, "n_window_infer", "must be a multiple of a chunk, 100"),
        ({"encoder_attention_heads": 5}, "encoder_attention_heads", r"must divide d_model \(48\)"),
        ({"output_dim": 32}, "output_dim", "must be the hidden_size of the decoder, 64, got 32"),
        ({"activation_function": "relu"}, "activation_function", "relu"),
        ({"d_model": 51}, "d_model", "must be even"),
        ({"num_mel_bins": 0}, "num_mel_bins", "must be >= 1"),
    ],
)
def test_wrong_fields_are_named(
    tmp_path: Path, audio: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message) as caught:
        _read(tmp_path, audio)

    assert str(caught.value.field).endswith(field)


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["Qwen3ASRForTokenClassification"]},
        {"thinker_config": {**ASR_CONFIG, "classify_num": 5000}},
    ],
)
def test_the_forced_aligner_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ModelLoadError, match="the forced aligner is not supported"):
        _read(tmp_path, {}, **changes)


def _features(directory: Path, name: str, values: dict[str, Any]) -> ChunkFeatures:
    tower = _tower(_read(directory, {}))
    (directory / name).write_text(json.dumps(values))
    return read_chunk_features(ConfigFiles(directory), tower)


def test_settings_of_features_come_from_either_file(tmp_path: Path) -> None:
    assert _features(tmp_path, "preprocessor_config.json", {}).min_samples == 8000
    nested = {"feature_extractor": {"min_length": 4000, "feature_size": 128, "dither": 0.0}}
    assert _features(tmp_path, "processor_config.json", nested).min_samples == 4000


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"feature_size": 80}, "must be 128, got 80"),
        ({"hop_length": 320}, "must be 160, got 320"),
        ({"dither": 0.1}, "noise is not added"),
    ],
)
def test_features_that_the_tower_does_not_read_are_refused(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        _features(tmp_path, "preprocessor_config.json", values)
