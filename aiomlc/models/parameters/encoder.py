"""The parameters of an encoder."""

from __future__ import annotations

__all__ = ("encoder_parameters",)

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from aiomlc.models.config.encoder import (
    BlockEncoderConfig,
    ClassifierConfig,
    EncoderConfig,
    PositionBuckets,
    RelativePositions,
)
from aiomlc.models.parameters.decoder import decoder_parameters
from aiomlc.models.parameters.parameter import Parameter

_DECODER_PREFIX: Final = re.compile(r"^model\.")  # The output head has none.


def encoder_parameters(config: EncoderConfig | BlockEncoderConfig) -> tuple[Parameter, ...]:
    """Return every parameter of an encoder, under the graph's names (a matrix without `.weight`),
    which are MLC's for BERT."""
    if isinstance(config, EncoderConfig):
        encoder = tuple(_with_prefix(p, config.hf_prefix) for p in _parameters(config))
    else:
        encoder = tuple(_block_parameters(config))
    if config.classifier is None:
        return encoder

    return (*encoder, *_classifier(config.classifier, config.hidden_size))


def _block_parameters(config: BlockEncoderConfig) -> Iterator[Parameter]:
    has_head = config.has_token_logits and not config.blocks.tie_word_embeddings
    for parameter in decoder_parameters(replace(config.blocks, tie_word_embeddings=not has_head)):
        sources = (re.sub(_DECODER_PREFIX, config.hf_prefix, name) for name in parameter.sources)
        yield replace(parameter, sources=tuple(sources))
    if config.position_table:
        shape = (config.max_tokens, config.hidden_size)
        yield _matrix("position_embed", shape, config.position_table)
    if config.has_embedding_norm:
        kinds = ("weight", "bias") if config.blocks.norm_kind == "layer" else ("weight",)
        for kind in kinds:
            source = f"{config.hf_prefix}embeddings.norm.{kind}"
            yield Parameter(f"embedding_norm.{kind}", "vector", (config.hidden_size,), (source,))


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
    hidden, names = config.hidden_size, config.names
    size = config.embedding_size or hidden
    yield _matrix("embeddings.word_embeddings", (config.vocab_size, size), names.words)
    if config.has_position_table:
        shape = (config.num_positions, size)
        yield _matrix("embeddings.position_embeddings", shape, names.positions)
    if config.num_token_types:
        shape = (config.num_token_types, size)
        yield _matrix("embeddings.token_type_embeddings", shape, names.token_types)
    yield from _norm("embeddings.LayerNorm", size, names.norm)
    if config.embedding_size is not None:
        source = [names.embedding_projection]
        yield from _linear("embeddings.projection", (hidden, size), source, bias=True)
    yield from _position_bias(config)
    for layer in range(config.num_hidden_layers):
        yield from _layer(config, f"encoder.layer.{layer}", names.of_layer(layer))


def _position_bias(config: EncoderConfig) -> Iterator[Parameter]:
    names = config.names
    match config.position_bias:
        case PositionBuckets(num_buckets=count):
            shape = (count, config.num_attention_heads)
            table = _matrix("encoder.relative_attention_bias.table", shape, names.position_bias)
            yield replace(table, keep_float32=True)
        case RelativePositions(count=count, has_norm=has_norm):
            shape = (2 * count, config.hidden_size)
            table = _matrix("encoder.relative_positions.table", shape, names.relative_positions)
            yield replace(table, keep_float32=True)
            if has_norm:
                name = "encoder.relative_positions.norm"
                yield from _norm(name, config.hidden_size, names.relative_norm)
        case _:
            pass


def _layer(config: EncoderConfig, prefix: str, source: str) -> Iterator[Parameter]:
    hidden, inner, names = config.hidden_size, config.intermediate_size, config.names
    up = inner if config.gate is None else 2 * inner

    def linear(name: str, shape: tuple[int, int], *sources: str, bias: bool) -> Iterator[Parameter]:
        return _linear(f"{prefix}.{name}", shape, [source + each for each in sources], bias=bias)

    def norm(name: str, own: str) -> Iterator[Parameter]:
        return _norm(f"{prefix}.{name}", hidden, source + own)

    square, output = (hidden, hidden), names.attention_output
    yield from linear("attention.self.qkv", (3 * hidden, hidden), *names.qkv, bias=config.qkv_bias)
    yield from linear("attention.output.dense", square, output, bias=config.output_bias)
    yield from norm("attention.output.LayerNorm", names.attention_norm)
    bias = config.position_bias
    if isinstance(bias, RelativePositions) and bias.has_projections:
        both = names.relative_projections
        yield from linear("attention.self.positions", (2 * hidden, hidden), *both, bias=True)
    if config.has_more_norms:
        yield from norm("attention.self.norms.query", names.query_norm)
        yield from norm("attention.self.norms.key", names.key_norm)
        yield from norm("attention.LayerNorm", names.residual_norm)
    yield from linear("intermediate.dense", (up, hidden), *names.up, bias=config.up_bias)
    yield from linear("output.dense", (hidden, inner), names.down, bias=config.down_bias)
    yield from norm("output.LayerNorm", names.output_norm)


def _linear(
    name: str, shape: tuple[int, int], sources: Sequence[str], *, bias: bool
) -> Iterator[Parameter]:
    yield _matrix(name, shape, *sources)
    if bias:
        biases = tuple(f"{source}.bias" for source in sources)
        yield Parameter(f"{name}.bias", "vector", shape[:1], biases)


def _norm(name: str, size: int, source: str) -> Iterator[Parameter]:
    for kind in ("weight", "bias"):
        yield Parameter(f"{name}.{kind}", "vector", (size,), (f"{source}.{kind}",))


def _matrix(name: str, shape: tuple[int, int], *sources: str) -> Parameter:
    return Parameter(name, "matrix", shape, tuple(f"{source}.weight" for source in sources))
