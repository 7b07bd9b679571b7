"""Each family of encoders computes the same as transformers, for each input independently."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import anyio
import gguf
import numpy as np
import pytest
from anyio import to_thread
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.errors import BadRequestError, InputTooLongError
from aiomlc.models import read_description
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.prepare import prepare_model
from aiomlc.runtime.native.encoder import NativeEncoder
from aiomlc.weights import map_weights
from tests.model.gguf_files import add_tiny_text, write_gguf
from tests.model.make_encoder_reference import REFERENCE, reference_outputs
from tests.model.tiny_encoders import (
    CONFIGS,
    DENSE,
    TEXTS,
    encoded_texts,
    encoder_weights,
    write_encoder,
)
from tests.model.tiny_models import (
    TINY_CONFIGS,
    tiny_weights,
    write_model,
    write_safetensors,
)

Directory = Callable[[str], Path]
Rows = NDArray[np.float32]


@pytest.fixture(scope="session")
def directory_of(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Return a function that writes an encoder and returns its directory."""
    root = tmp_path_factory.mktemp("tiny_encoders")
    return lambda name: write_encoder(root / name, name)


def open_encoder(directory: Path, quantization: str | None = None) -> NativeEncoder:
    async def open_one() -> NativeEncoder:
        config = EngineConfig(num_threads=2, quantization=quantization)
        facts = ModelFacts(find_model(directory), config.quantization)
        model = await prepare_model(facts, "cpu", config, lambda _: None)
        weights = model.weights
        params = map_weights(weights.path, weights.nbytes, weights.params)
        return NativeEncoder(model.library, params, model.num_threads)

    return anyio.run(open_one)


def stored(name: str) -> Rows:
    with np.load(REFERENCE / "encoders.npz") as file:
        rows: Rows = file[name]
        return rows


@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_equal_transformers_in_any_batch(directory_of: Directory, name: str) -> None:
    encoder = open_encoder(directory_of(name))
    inputs = encoded_texts()

    together = encoder.forward(inputs)
    alone = [encoder.forward([each]) for each in inputs]

    assert together.shape == stored(name).shape
    assert np.abs(together - stored(name)).max() <= 2e-5
    np.testing.assert_array_equal(np.concatenate(alone), together)


@pytest.mark.parametrize(("quantization", "limit"), [("q0bf16", 0.02), ("w8a8", 0.06)])
@pytest.mark.parametrize("name", ["albert", "deberta_v2", "deberta_v3"])
def test_smaller_weights_stay_close_in_any_batch(
    directory_of: Directory, name: str, quantization: str, limit: float
) -> None:
    encoder = open_encoder(directory_of(name), quantization)
    inputs = encoded_texts()

    together = encoder.forward(inputs)
    alone = [encoder.forward([each]) for each in inputs]

    assert np.linalg.norm(together - stored(name)) <= limit * np.linalg.norm(stored(name))
    np.testing.assert_array_equal(np.concatenate(alone), together)


@pytest.mark.parametrize("name", CONFIGS)
def test_stored_outputs_are_those_of_transformers(name: str) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")

    np.testing.assert_allclose(reference_outputs(name), stored(name), atol=1e-5)


@pytest.mark.parametrize("name", ["bert_reranker", "xlm_roberta_reranker", "deberta_v3_reranker"])
async def test_an_engine_reranks_by_the_sigmoid_of_the_logit(
    directory_of: Directory, name: str
) -> None:
    logits = [stored(name)[index][0] for index, text in enumerate(TEXTS) if len(text) == 2]
    pairs = [text for text in TEXTS if isinstance(text, tuple)]
    async with AsyncMLCEngine(directory_of(name)) as engine:
        scores = await engine.score(pairs)
        raw = await engine.score(pairs, use_activation=False)
        ranked = await engine.rerank(pairs[0][0], [pairs[1][1], pairs[0][1]])

    assert [item.score for item in raw.data] == pytest.approx(logits, abs=2e-5)
    expected = [1 / (1 + np.exp(-logit)) for logit in logits]
    assert [item.score for item in scores.data] == pytest.approx(expected, abs=2e-5)
    by_index = {result.index: result.relevance_score for result in ranked.results}
    assert by_index[1] == scores.data[0].score
    assert sum(map(len, (each.ids for each in encoded_texts()[2:4]))) == scores.usage.total_tokens


@pytest.mark.parametrize(
    "name", ["roberta_classifier", "deberta_v3_classifier", "albert_classifier"]
)
async def test_a_classifier_names_its_labels(directory_of: Directory, name: str) -> None:
    logits = stored(name)[1].astype(np.float64)
    async with AsyncMLCEngine(directory_of(name)) as engine:
        response = await engine.classify(TEXTS[1])

    (result,) = response.data
    assert result.probs == pytest.approx(list(np.exp(logits) / np.exp(logits).sum()), abs=1e-5)
    assert result.label == ("negative", "neutral", "positive")[int(logits.argmax())]


async def test_the_positions_of_roberta_begin_after_the_padding(directory_of: Directory) -> None:
    async with AsyncMLCEngine(directory_of("roberta")) as engine:
        with pytest.raises(InputTooLongError, match="at most 64 tokens, got 65"):
            await engine.embeddings.create(input=[[5] * 65])

        assert len((await engine.embeddings.create(input=[[5] * 64])).data) == 1


async def test_embedders_and_rerankers_are_not_each_other(directory_of: Directory) -> None:
    async with AsyncMLCEngine(directory_of("roberta")) as engine:
        with pytest.raises(BadRequestError, match="is an encoder, which does not support classify"):
            await engine.classify("a")
    async with AsyncMLCEngine(directory_of("bert_reranker")) as engine:
        with pytest.raises(BadRequestError, match="is a classifier, which does not support embed"):
            await engine.embeddings.create(input="a")


async def test_a_decoder_embeds_by_its_last_token(directory_of: Directory) -> None:
    ends = np.cumsum([len(each.ids) for each in encoded_texts()])
    state = stored("qwen3_embedding")[ends[1] - 1]
    async with AsyncMLCEngine(directory_of("qwen3_embedding")) as engine:
        response = await engine.embeddings.create(input=TEXTS[1])
        with pytest.raises(BadRequestError, match="is an encoder"):
            await engine.chat.completions.create(messages=[{"role": "user", "content": "a"}])

    expected = state / np.linalg.norm(state)
    assert response.data[0].embedding == pytest.approx(list(expected), abs=1e-5)


async def test_dense_layers_and_dimensions_are_those_of_sentence_transformers(
    directory_of: Directory,
) -> None:
    ends = np.cumsum([len(each.ids) for each in encoded_texts()])
    mean = stored("embeddinggemma")[ends[0] : ends[1]].mean(axis=0)
    vector = DENSE["3_Dense"] @ (DENSE["2_Dense"] @ mean)
    async with AsyncMLCEngine(directory_of("embeddinggemma")) as engine:
        whole = await engine.embeddings.create(input=TEXTS[1])
        part = await engine.embeddings.create(input=TEXTS[1], dimensions=16)
        with pytest.raises(BadRequestError, match="must be one of 16, 32, which the model"):
            await engine.embeddings.create(input=TEXTS[1], dimensions=20)

    for response, kept in ((whole, vector), (part, vector[:16])):
        expected = kept / np.linalg.norm(kept)
        assert response.data[0].embedding == pytest.approx(list(expected), abs=1e-5)


@pytest.mark.parametrize("prefix", ["", "model."])
async def test_the_tensors_of_a_decoder_may_have_a_prefix(
    directory_of: Directory, tmp_path: Path, prefix: str
) -> None:
    weights = encoder_weights("qwen3_embedding")
    directory = write_encoder(tmp_path / "model", "qwen3_embedding")
    renamed = {prefix + name: value for name, value in weights.items()}
    write_safetensors(directory / "model.safetensors", renamed)

    outputs = await to_thread.run_sync(lambda: open_encoder(directory).forward(encoded_texts()))

    assert np.abs(outputs - stored("qwen3_embedding")).max() <= 2e-5


async def test_a_gguf_file_with_a_pooling_embeds_like_its_directory(
    model_cache: Path, tmp_path: Path
) -> None:
    directory = write_model(tmp_path / "qwen3", "qwen3")
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    modules = [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
    (directory / "modules.json").write_text(json.dumps(modules))

    def add_text(writer: gguf.GGUFWriter) -> None:
        add_tiny_text(writer)
        writer.add_pooling_type(gguf.PoolingType.LAST)

    weights = tiny_weights("qwen3")
    file = write_gguf(tmp_path / "qwen3.gguf", TINY_CONFIGS["qwen3"], weights, add_text)
    vectors = []
    for model in (directory, file):
        config = EngineConfig(quantization="q0f32", num_threads=2)
        async with AsyncMLCEngine(model, engine_config=config) as engine:
            response = await engine.embeddings.create(input=[[5, 9, 2, 7], [3]])
            vectors.append(np.array([item.embedding for item in response.data]))

    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


def test_a_decoder_without_the_files_of_an_embedder_stays_a_decoder(tmp_path: Path) -> None:
    assert read_description(write_model(tmp_path / "qwen3", "qwen3")).config.kind == "decoder"
