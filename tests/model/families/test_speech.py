"""A compiled speech model computes what transformers computes, in short and in long recordings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from anyio import create_task_group
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.errors import ModelLoadError
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.prepare import prepare_model
from aiomlc.runtime.native.speech import NativeSpeech, SlotTokens
from aiomlc.weights import map_weights
from tests.model.make_speech_reference import DECODED, GENERATED, OPTIONS, REFERENCE, SECONDS
from tests.model.tiny_speech import (
    GENERATION_CONFIG,
    SPEECH_CONFIG,
    speech_audio,
    write_speech,
)

OpenSpeech = Callable[..., NativeSpeech]
#: Without thresholds, like `generate` by default.
PLAIN: dict[str, Any] = {
    "temperature": [0.0],
    "compression_ratio_threshold": None,
    "logprob_threshold": None,
    "no_speech_threshold": None,
}


@pytest.fixture(scope="session")
def speech_directory(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_speech(tmp_path_factory.mktemp("tiny_speech") / "whisper")


@pytest.fixture(scope="session")
def open_speech(speech_directory: Path) -> OpenSpeech:
    def open_one(quantization: str | None = None, num_threads: int = 2) -> NativeSpeech:
        async def run() -> NativeSpeech:
            config = EngineConfig(quantization=quantization, num_threads=num_threads)
            facts = ModelFacts(find_model(speech_directory), quantization)
            model = await prepare_model(facts, "cpu", config, lambda _: None)
            weights = model.weights
            params = map_weights(weights.path, weights.nbytes, weights.params)
            return NativeSpeech(model.library, params, model.num_threads, 4)

        return anyio.run(run)

    return open_one


@pytest.fixture(scope="module")
def reference() -> dict[str, NDArray[Any]]:
    with np.load(REFERENCE) as file:
        return dict(file)


def window(reference: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    return np.ascontiguousarray(reference["window"].T)


def decode_one_by_one(model: NativeSpeech, slot: int) -> NDArray[np.float32]:
    """Return the logits of all tokens: of the first ones together, of the others one by one."""
    rows = [model.decode([SlotTokens(slot, DECODED[:4], 0, range(4))])]
    for position, token in enumerate(DECODED[4:], 4):
        rows.append(model.decode([SlotTokens(slot, [token], position, (0,))]))
    return np.concatenate(rows)


def test_states_and_logits_equal_transformers(
    open_speech: OpenSpeech, reference: dict[str, NDArray[Any]]
) -> None:
    model = open_speech()
    states = model.states(window(reference))
    model.encode(window(reference), 1)
    logits = decode_one_by_one(model, 1)

    assert states.shape == reference["states"].shape
    assert np.abs(states - reference["states"]).max() <= 1e-5
    assert logits.shape == reference["logits"].shape
    assert np.abs(logits - reference["logits"]).max() <= 2e-4


@pytest.mark.parametrize(
    ("quantization", "limit"), [("q0f16", 0.01), ("q0bf16", 0.05), ("q4f16_1", 0.6)]
)
def test_smaller_weights_stay_close(
    open_speech: OpenSpeech,
    reference: dict[str, NDArray[Any]],
    quantization: str,
    limit: float,
) -> None:
    model = open_speech(quantization)
    model.encode(window(reference), 0)
    logits = decode_one_by_one(model, 0)

    error = np.linalg.norm(logits - reference["logits"])
    assert error <= limit * np.linalg.norm(reference["logits"])


def test_bits_depend_neither_on_the_other_slots_nor_on_the_threads(
    open_speech: OpenSpeech, reference: dict[str, NDArray[Any]]
) -> None:
    model, other = open_speech(), open_speech(num_threads=1)
    first, second = window(reference), window(reference)[::-1].copy()
    model.encode(first, 2)
    model.encode(second, 0)
    model.decode([SlotTokens(2, DECODED[:5], 0, (0,)), SlotTokens(0, DECODED[:3], 0, (0,))])
    together = model.decode(
        [SlotTokens(0, [DECODED[3]], 3, (0,)), SlotTokens(2, DECODED[5:8], 5, (0, 2))]
    )
    other.encode(first, 3)
    other.decode([SlotTokens(3, DECODED[:5], 0, (0,))])
    alone = other.decode([SlotTokens(3, DECODED[5:8], 5, (0, 2))])

    np.testing.assert_array_equal(together[1:], alone)


def expected_tokens(reference: dict[str, NDArray[Any]], key: str) -> list[int]:
    """Return what `generate` returned, without the end and the repeated timestamps of its ends."""
    tokens = [int(token) for token in reference[f"tokens-{key}"]]
    return [token for token in tokens if token != GENERATION_CONFIG["eos_token_id"]]


def without_repeated_times(tokens: list[int]) -> list[int]:
    first = GENERATION_CONFIG["no_timestamps_token_id"] + 1
    return [
        token
        for index, token in enumerate(tokens)
        if not (index and token >= first and tokens[index - 1] == token)
    ]


@pytest.mark.parametrize(("seconds", "timestamps", "name"), GENERATED)
async def test_greedy_tokens_equal_those_of_transformers(
    speech_directory: Path,
    reference: dict[str, NDArray[Any]],
    seconds: float,
    timestamps: bool,
    name: str,
) -> None:
    options = dict(OPTIONS[name])
    condition = options.pop("condition_on_prev_tokens", False)
    async with AsyncMLCEngine(speech_directory) as engine:
        answer = await engine.transcribe(
            speech_audio(seconds),
            timestamps=timestamps,
            condition_on_previous_text=condition,
            **options,
            **PLAIN,
        )

    tokens = [token for segment in answer.segments for token in segment.tokens]
    expected = expected_tokens(reference, f"{seconds}-{timestamps}-{name}")
    assert without_repeated_times(tokens) == without_repeated_times(expected)


async def test_the_detected_language_is_that_of_transformers(
    speech_directory: Path, reference: dict[str, NDArray[Any]]
) -> None:
    async with AsyncMLCEngine(speech_directory) as engine:
        answer = await engine.transcribe(speech_audio(SECONDS[1]), **PLAIN)

    token = GENERATION_CONFIG["lang_to_id"][f"<|{answer.language}|>"]
    assert token == int(reference["language"][0])


async def test_concurrent_recordings_have_the_texts_of_each_alone(speech_directory: Path) -> None:
    recordings = [speech_audio(seconds, seed) for seed, seconds in enumerate((2.0, 5.0, 3.0))]
    together: dict[int, str] = {}
    async with AsyncMLCEngine(speech_directory) as engine:
        alone = [await engine.transcribe(each, **PLAIN) for each in recordings]
        async with create_task_group() as tasks:

            async def run(index: int) -> None:
                answer = await engine.transcribe(recordings[index], **PLAIN)
                together[index] = answer.model_dump_json()

            for index in range(len(recordings)):
                tasks.start_soon(run, index)

    assert together == {index: each.model_dump_json() for index, each in enumerate(alone)}


async def test_a_seed_repeats_a_text_of_a_temperature(speech_directory: Path) -> None:
    options = {**PLAIN, "temperature": [0.9], "timestamps": True}
    texts = []
    async with AsyncMLCEngine(speech_directory) as engine:
        for seed in (1, 1, 2):
            answer = await engine.transcribe(speech_audio(2.0), seed=seed, **options)
            texts.append(answer.text)

    assert texts[0] == texts[1] != texts[2]


FIRST_TIMESTAMP = GENERATION_CONFIG["no_timestamps_token_id"] + 1
END = GENERATION_CONFIG["eos_token_id"]
RULES_WITHOUT_A_TOKEN: dict[str, list[dict[str, Any]]] = {
    "no_timestamps_token_id": [
        {"no_timestamps_token_id": 0},
        {"no_timestamps_token_id": FIRST_TIMESTAMP},
        {"no_timestamps_token_id": SPEECH_CONFIG["vocab_size"] - 1},
        {"eos_token_id": FIRST_TIMESTAMP},
    ],
    "suppress_tokens": [
        {"suppress_tokens": [END]},
        {"suppress_tokens": [FIRST_TIMESTAMP]},
        {"suppress_tokens": list(range(END))},
        {"begin_suppress_tokens": list(range(END))},
        {"eos_token_id": 0, "begin_suppress_tokens": []},
    ],
    "begin_suppress_tokens": [{"begin_suppress_tokens": [FIRST_TIMESTAMP + 3]}],
    "lang_to_id": [{"lang_to_id": {"<||>": 122}}, {"lang_to_id": {"<|en|>": 122, "en": 123}}],
}


@pytest.mark.parametrize(
    ("file", "fields", "field"),
    [
        ("config.json", {"activation_function": "relu"}, "activation_function"),
        ("config.json", {"scale_embedding": True}, "scale_embedding"),
        ("config.json", {"encoder_attention_heads": 5}, "encoder_attention_heads"),
        ("config.json", {"d_model": 2**30}, "d_model"),
        ("generation_config.json", {"eos_token_id": 10**6}, "eos_token_id"),
        ("generation_config.json", {"no_timestamps_token_id": None}, "no_timestamps_token_id"),
        ("generation_config.json", {"suppress_tokens": [-1]}, "suppress_tokens"),
        *(
            ("generation_config.json", fields, field)
            for field, values in RULES_WITHOUT_A_TOKEN.items()
            for fields in values
        ),
        ("preprocessor_config.json", {"feature_size": 128}, "feature_size"),
        ("preprocessor_config.json", {"chunk_length": 30}, "chunk_length"),
    ],
)
async def test_files_that_do_not_fit_are_refused(
    model_cache: Path, tmp_path: Path, file: str, fields: dict[str, Any], field: str
) -> None:
    directory = write_speech(tmp_path / "whisper")
    path = directory / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    with pytest.raises(ModelLoadError) as info:
        async with AsyncMLCEngine(directory):
            pass

    assert info.value.field == field
