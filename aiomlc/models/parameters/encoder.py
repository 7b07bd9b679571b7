"""The parameters of an encoder."""

from __future__ import annotations

__all__ = ("encoder_parameters",)

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from aiomlc.models.config.encoder import BlockEncoderConfig, ClassifierConfig, EncoderConfig
from aiomlc.models.parameters.decoder import decoder_parameters
from aiomlc.models.parameters.parameter import Parameter

_DECODER_PREFIX: Final = "model."


def encoder_parameters(config: EncoderConfig | BlockEncoderConfig) -> tuple[Parameter, ...]:
    """Return every parameter of an encoder, under the graph's names (a matrix without `.weight`),
    which are MLC's for BERT."""
    if isinstance(config, EncoderConfig):
        encoder = tuple(_with_prefix(p, config.hf_prefix) for p in _parameters(config))
    else:
        encoder = tuple(_with_prefix(p, config.hf_prefix) for p in _block_parameters(config))
    if config.classifier is None:
        return encoder

    return (*encoder, *_classifier(config.classifier, config.hidden_size))


def _block_parameters(config: BlockEncoderConfig) -> Iterator[Parameter]:
    for parameter in decoder_parameters(replace(config.blocks, tie_word_embeddings=True)):
        sources = tuple(name.removeprefix(_DECODER_PREFIX) for name in parameter.sources)
        yield replace(parameter, sources=sources)
    if config.has_embedding_norm:
        name = "embedding_norm.weight"
        yield Parameter(name, "vector", (config.hidden_size,), ("embeddings.norm.weight",))
        if config.blocks.norm_kind == "layer":
            name = "embedding_norm.bias"
            yield Parameter(name, "vector", (config.hidden_size,), ("embeddings.norm.bias",))


def _with_prefix(parameter: Parameter, prefix: str) -> Parameter:
    return replace(parameter, sources=tuple(prefix + name for name in parameter.sources))


def _classifier(config: ClassifierConfig, hidden: int) -> Iterator[Parameter]:
    if config.dense:
        yield from _head_linear("dense", config.dense, (hidden, hidden), bias=config.dense_bias)
    if config.norm:
        name = "classifier.norm.weight"
        yield Parameter(name, "vector", (hidden,), (f"{config.norm}.weight",))
    shape = (config.num_labels, hidden)
    yield from _head_linear("output", config.output, shape, bias=config.output_bias)


def _head_linear(
    name: str, source: str, shape: tuple[int, int], *, bias: bool
) -> Iterator[Parameter]:
    name, weight = f"classifier.{name}", f"{source}.weight"
    yield Parameter(name, "matrix", shape, (weight,), keep_float32=True)
    if bias:
        yield Parameter(f"{name}.bias", "vector", shape[:1], (f"{source}.bias",))


def _parameters(config: EncoderConfig) -> Iterator[Parameter]:
    hidden, inner = config.hidden_size, config.intermediate_size
    yield _matrix("embeddings.word_embeddings", config.vocab_size, hidden)
    yield _matrix("embeddings.position_embeddings", config.num_positions, hidden)
    yield _matrix("embeddings.token_type_embeddings", config.num_token_types, hidden)
    yield from _norm("embeddings.LayerNorm", hidden)
    for layer in range(config.num_hidden_layers):
        prefix = f"encoder.layer.{layer}"
        yield from _attention(f"{prefix}.attention.self", hidden)
        yield from _linear(f"{prefix}.attention.output.dense", hidden, hidden)
        yield from _norm(f"{prefix}.attention.output.LayerNorm", hidden)
        yield from _linear(f"{prefix}.intermediate.dense", hidden, inner)
        yield from _linear(f"{prefix}.output.dense", inner, hidden)
        yield from _norm(f"{prefix}.output.LayerNorm", hidden)


def _attention(prefix: str, hidden: int) -> Iterator[Parameter]:
    parts = [f"{prefix}.{part}" for part in ("query", "key", "value")]
    weights = tuple(f"{part}.weight" for part in parts)
    biases = tuple(f"{part}.bias" for part in parts)
    yield Parameter(f"{prefix}.qkv", "matrix", (3 * hidden, hidden), weights)
    yield Parameter(f"{prefix}.qkv.bias", "vector", (3 * hidden,), biases)


def _linear(name: str, inputs: int, outputs: int) -> Iterator[Parameter]:
    yield _matrix(name, outputs, inputs)
    yield _vector(f"{name}.bias", outputs)


def _norm(name: str, size: int) -> Iterator[Parameter]:
    yield _vector(f"{name}.weight", size)
    yield _vector(f"{name}.bias", size)


def _matrix(name: str, rows: int, columns: int) -> Parameter:
    return Parameter(name, "matrix", (rows, columns), (f"{name}.weight",))


def _vector(name: str, size: int) -> Parameter:
    return Parameter(name, "vector", (size,), (name,))
