"""Features and rules are those of transformers, whose results are stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models import SpeechConfig, read_description
from aiomlc.runtime.speech.features import LogMel
from aiomlc.runtime.speech.generation import SpeechTokens, read_speech_tokens
from aiomlc.runtime.speech.rules import TokenRules
from tests.model.make_speech_reference import (
    FRAME_STEP,
    MELS,
    REFERENCE,
    SECONDS,
    padded_audio,
    rule_cases,
)
from tests.model.tiny_speech import speech_audio, write_speech


@pytest.fixture(scope="module")
def reference() -> dict[str, NDArray[np.float32]]:
    with np.load(REFERENCE) as file:
        return dict(file)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> SpeechTokens:
    directory = write_speech(tmp_path_factory.mktemp("speech"))
    config = read_description(directory).config
    assert isinstance(config, SpeechConfig)
    return read_speech_tokens(ConfigFiles(directory), config)


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize("mels", MELS)
def test_features_equal_those_of_transformers(
    reference: dict[str, NDArray[np.float32]], seconds: float, mels: int
) -> None:
    features = LogMel(mels).features(padded_audio(seconds))[::FRAME_STEP]

    expected = reference[f"features-{seconds}-{mels}"].T
    assert features.shape == expected.shape
    assert np.abs(features - expected).max() <= 1e-6


def test_features_are_close_to_those_that_torch_computes(
    reference: dict[str, NDArray[np.float32]],
) -> None:
    features = LogMel(MELS[0]).features(padded_audio(SECONDS[0]))

    assert np.abs(features - reference["window"].T).max() <= 5e-5  # Computed in float32.


def test_the_work_of_features_can_be_ended() -> None:
    class EndedError(Exception):
        pass

    def check() -> None:
        raise EndedError

    with pytest.raises(EndedError):
        LogMel(80).features(speech_audio(1.0), check)


@pytest.mark.parametrize("with_timestamps", [False, True])
def test_rules_are_those_of_transformers(
    reference: dict[str, NDArray[np.float32]], tokens: SpeechTokens, with_timestamps: bool
) -> None:
    rules = TokenRules(tokens, with_timestamps=with_timestamps)
    for index, (generated, logits) in enumerate(rule_cases()):
        expected = reference[f"rules-{index}-{with_timestamps}"]
        np.testing.assert_array_equal(rules.apply(logits, generated), expected, str(index))


def test_special_tokens_are_those_of_the_file(tokens: SpeechTokens, tmp_path: Path) -> None:
    assert list(tokens.languages) == ["en", "de", "fr"]
    assert list(tokens.tasks) == ["transcribe", "translate"]
    assert tokens.first_timestamp == tokens.no_timestamps + 1
    directory = write_speech(tmp_path, is_multilingual=False)
    config = read_description(directory).config
    assert isinstance(config, SpeechConfig)

    english = read_speech_tokens(ConfigFiles(directory), config)

    assert (english.languages, english.tasks) == ({}, {})
