"""Open an encoder, whose results are embeddings, or the scores of labels."""

from __future__ import annotations

__all__ = ("load_encoder",)

from collections.abc import Sequence
from typing import Any, Final

from anyio import to_thread

from aiomlc.config import EngineConfig
from aiomlc.errors import ModelLoadError
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.text_files import read_tokenizer_json
from aiomlc.models.config.encoder import BlockEncoderConfig, EncoderConfig, TextHeadConfig
from aiomlc.models.config.fields import Fields
from aiomlc.runtime.embedding.activation import read_activation, read_labels
from aiomlc.runtime.embedding.batcher import EncoderBatcher
from aiomlc.runtime.embedding.dense import DenseLayer, read_linear
from aiomlc.runtime.embedding.embedder import Classifier, Embedder
from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer
from aiomlc.runtime.embedding.image_embedder import ImageEmbedder
from aiomlc.runtime.embedding.pair_prompt import PairPromptTokenizer, read_pair_template
from aiomlc.runtime.embedding.pooling import SentenceConfig, read_sentence_config
from aiomlc.runtime.embedding.text_ends import read_text_end
from aiomlc.runtime.embedding.token_heads import read_token_heads
from aiomlc.runtime.loading.capacity import sequence_length
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.loaded_model import LoadedEncoder
from aiomlc.runtime.loading.model_directory import ModelDirectory
from aiomlc.runtime.loading.open_tower import open_image_embedder
from aiomlc.runtime.loading.prepare import PreparedModel, prepare_model
from aiomlc.runtime.loading.progress import LoadProgress, OnProgress
from aiomlc.runtime.native.encoder import NativeEncoder
from aiomlc.runtime.tokenization.backend import read_tokenizer_file
from aiomlc.validation.model_files import load_errors
from aiomlc.weights import map_weights

_BATCH_TOKENS_PER_THREAD: Final = 256
_MIN_BATCH_TOKENS: Final = 512
_MAX_BATCH_TOKENS: Final = 2048


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
    images = await open_image_embedder(facts, engine_config, report)
    report(LoadProgress("load", None, "opening the model"))
    return await to_thread.run_sync(_assemble, facts, prepared, engine_config, images)


def _assemble(
    facts: ModelFacts, prepared: PreparedModel, config: EngineConfig, images: ImageEmbedder | None
) -> LoadedEncoder:
    directory, metadata, weights = facts.directory, prepared.library.metadata, prepared.weights
    sentence_config = _sentence_config(facts, int(metadata["hidden_size"]))
    longest = sequence_length(config, int(metadata["context_window_size"]))
    max_tokens = min(sentence_config.max_tokens or longest, longest)
    has_token_logits = bool(metadata["has_token_logits"])
    tokenizer: EncoderTokenizer
    if has_token_logits:
        _check_score_tokens(directory, sentence_config, int(metadata["vocab_size"]))
        tokenizer = _read_pair_tokenizer(directory, sentence_config, max_tokens)
    else:
        tokenizer = _read_tokenizer(directory, max_tokens)
    if tokenizer.vocab_size > metadata["vocab_size"]:
        raise ModelLoadError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, but the model only "
            f"{metadata['vocab_size']}",
            path=directory.path,
            field="vocab_size",
        )

    params = map_weights(weights.path, weights.nbytes, weights.params)
    encoder = NativeEncoder(prepared.library, params, prepared.num_threads)
    num_labels = 1 if has_token_logits else int(metadata["num_labels"])
    common: dict[str, Any] = {
        "batcher": EncoderBatcher(
            encoder,
            rows_per_token=num_labels == 0,
            batch_tokens=_batch_tokens(prepared.num_threads),
        ),
        "tokenizer": tokenizer,
        "model_name": directory.name,
        "max_tokens": max_tokens,
        "vocab_size": int(metadata["vocab_size"]),
    }
    if num_labels:
        labels = read_labels(directory.files, num_labels)
        activation = read_activation(directory.files, num_labels)
        tokens = sentence_config.score_tokens
        return LoadedEncoder(
            Classifier(**common, labels=labels, activation=activation, score_tokens=tokens)
        )

    return LoadedEncoder(_build_embedder(facts, sentence_config, common, images))


def _build_embedder(
    facts: ModelFacts,
    sentence_config: SentenceConfig,
    common: dict[str, Any],
    images: ImageEmbedder | None,
) -> Embedder:
    model, directory, head = facts.config, facts.directory, _text_head(facts)
    assert isinstance(model, EncoderConfig | BlockEncoderConfig)
    hidden, dense, token_id = model.hidden_size, sentence_config.dense, common["tokenizer"].token_id
    _check_dense(directory, hidden, dense)
    text_end = None
    if head is not None:
        text_end = read_text_end(directory.files, head, model.max_tokens, token_id)
    return Embedder(
        **common,
        size=dense[-1].weight.shape[0] if dense else hidden,
        pooling=sentence_config.pooling,
        normalize=sentence_config.normalize,
        dense=dense,
        prompts=sentence_config.prompts,
        default_prompt=sentence_config.default_prompt,
        dimensions=_read_dimensions(directory),
        heads=read_token_heads(directory.files, hidden, token_id),
        text_end=text_end,
        images=images,
    )


def _text_head(facts: ModelFacts) -> TextHeadConfig | None:
    model = facts.config
    return model.text_head if isinstance(model, BlockEncoderConfig) else None


def _sentence_config(facts: ModelFacts, hidden: int) -> SentenceConfig:
    """Return how states become vectors: that of the architecture, if images have vectors, too."""
    directory, head = facts.directory, _text_head(facts)
    if head is None:
        return read_sentence_config(directory.files)

    with load_errors(directory.path):
        matrix = read_linear(directory.path, head.source, (head.size, hidden), bias=head.bias)
    return SentenceConfig("last", dense=(matrix,))


def _check_dense(directory: ModelDirectory, hidden: int, layers: Sequence[DenseLayer]) -> None:
    for layer in layers:
        outputs, inputs = layer.weight.shape
        if inputs != hidden:
            raise ModelLoadError(
                f"{directory.path}: a dense layer must have {hidden} in_features, as many as the "
                f"vectors before it, got {inputs}",
                path=directory.path,
                field="in_features",
            )

        hidden = outputs


def _read_dimensions(directory: ModelDirectory) -> tuple[int, ...]:
    path = directory.files.path("config.json")
    fields = Fields(directory.files.object(path.name) or {}, path)
    name = "matryoshka_dimensions"
    return tuple(fields.integers(name)) if name in fields else ()


def _batch_tokens(num_threads: int) -> int:
    """Return the tokens of a forward pass: few enough for activations to stay in the caches, and
    enough for the work of a thread to take longer than its start."""
    return max(_MIN_BATCH_TOKENS, min(_MAX_BATCH_TOKENS, _BATCH_TOKENS_PER_THREAD * num_threads))


def _check_score_tokens(directory: ModelDirectory, config: SentenceConfig, vocab_size: int) -> None:
    tokens = [token for token in config.score_tokens or () if token is not None]
    for token in tokens:
        if token >= vocab_size:
            raise ModelLoadError(
                f"{directory.path}: the token ids of LogitScore must be in [0, {vocab_size}), "
                f"got {token}",
                path=directory.path,
                field="true_token_id" if token == tokens[0] else "false_token_id",
            )


def _read_pair_tokenizer(
    directory: ModelDirectory, config: SentenceConfig, max_tokens: int
) -> PairPromptTokenizer:
    path = directory.path / "tokenizer.json"
    instruction = None
    if config.default_prompt is not None:
        instruction = config.prompts[config.default_prompt]
    template = read_pair_template(directory.files)
    with load_errors(path):
        return PairPromptTokenizer(read_tokenizer_file(path), max_tokens, template, instruction)


def _read_tokenizer(directory: ModelDirectory, max_tokens: int) -> EncoderTokenizer:
    if not directory.files.is_gguf:
        return EncoderTokenizer.from_file(directory.path / "tokenizer.json", max_tokens)

    with load_errors(directory.path):
        text = read_tokenizer_json(read_gguf(directory.path))
        return EncoderTokenizer(text, max_tokens)
