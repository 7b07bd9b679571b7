"""Open an encoder, whose results are embeddings, or the scores of labels."""

from __future__ import annotations

__all__ = ("load_encoder",)

from typing import Any

from anyio import to_thread

from aiomlc.config import EngineConfig
from aiomlc.errors import ModelLoadError
from aiomlc.runtime.embedding.activation import read_activation, read_labels
from aiomlc.runtime.embedding.batcher import EncoderBatcher
from aiomlc.runtime.embedding.embedder import Classifier, Embedder
from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer
from aiomlc.runtime.embedding.pooling import read_sentence_config
from aiomlc.runtime.loading.capacity import sequence_length
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.loaded_model import LoadedEncoder
from aiomlc.runtime.loading.model_directory import ModelDirectory
from aiomlc.runtime.loading.prepare import PreparedModel, prepare_model
from aiomlc.runtime.loading.progress import LoadProgress, OnProgress
from aiomlc.runtime.native.encoder import NativeEncoder
from aiomlc.weights import map_weights


async def load_encoder(
    facts: ModelFacts, *, device: str, engine_config: EngineConfig, report: OnProgress
) -> LoadedEncoder:
    """Open an encoder.

    Raises:
        BadRequestError: If a setting does not apply to encoders, or exceeds the model's positions.
        ModelLoadError: If a file, tensor or field is missing or invalid.
        CompileError: If the library cannot be compiled.
    """
    await to_thread.run_sync(facts.check_tensors)
    prepared = await prepare_model(facts, device, engine_config, report)
    report(LoadProgress("load", None, "opening the model"))
    return await to_thread.run_sync(_assemble, facts.directory, prepared, engine_config)


def _assemble(
    directory: ModelDirectory, prepared: PreparedModel, config: EngineConfig
) -> LoadedEncoder:
    metadata = prepared.library.metadata
    weights = prepared.weights
    sentence_config = read_sentence_config(directory.files)
    positions = int(metadata["context_window_size"])
    longest = sequence_length(config, positions)
    max_tokens = min(sentence_config.max_tokens or longest, longest)
    tokenizer = EncoderTokenizer.from_file(directory.path / "tokenizer.json", max_tokens)
    if tokenizer.vocab_size > metadata["vocab_size"]:
        raise ModelLoadError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, but the model only "
            f"{metadata['vocab_size']}",
            path=directory.path,
            field="vocab_size",
        )

    params = map_weights(weights.path, weights.nbytes, weights.params)
    encoder = NativeEncoder(prepared.library, params, prepared.num_threads)
    num_labels = int(metadata["num_labels"])
    common: dict[str, Any] = {
        "batcher": EncoderBatcher(encoder, rows_per_token=num_labels == 0),
        "tokenizer": tokenizer,
        "model_name": directory.name,
        "max_tokens": max_tokens,
        "vocab_size": int(metadata["vocab_size"]),
    }
    if num_labels:
        labels = read_labels(directory.files, num_labels)
        activation = read_activation(directory.files, num_labels)
        return LoadedEncoder(Classifier(**common, labels=labels, activation=activation))

    embedder = Embedder(
        **common,
        hidden_size=metadata["hidden_size"],
        pooling=sentence_config.pooling,
        normalize=sentence_config.normalize,
    )
    return LoadedEncoder(embedder)
