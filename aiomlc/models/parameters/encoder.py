"""The parameters of an encoder (BERT, RoBERTa)."""

from __future__ import annotations

__all__ = ("encoder_parameters",)

from collections.abc import Iterator
from dataclasses import replace

from aiomlc.models.config.encoder import ClassifierConfig, EncoderConfig
from aiomlc.models.parameters.parameter import Parameter


def encoder_parameters(config: EncoderConfig) -> tuple[Parameter, ...]:
    """Return every parameter of an encoder, under MLC's names (a matrix without `.weight`)."""
    encoder = (_with_prefix(p, config.hf_prefix) for p in _parameters(config))
    if config.classifier is None:
        return tuple(encoder)

    return (*encoder, *_classifier(config.classifier, config.hidden_size))


def _with_prefix(parameter: Parameter, prefix: str) -> Parameter:
    return replace(parameter, sources=tuple(prefix + name for name in parameter.sources))


def _classifier(config: ClassifierConfig, hidden: int) -> Iterator[Parameter]:
    for name, source, rows in (
        ("dense", config.dense, hidden),
        ("output", config.output, config.num_labels),
    ):
        weight, bias = f"{source}.weight", f"{source}.bias"
        yield Parameter(
            f"classifier.{name}", "matrix", (rows, hidden), (weight,), keep_float32=True
        )
        yield Parameter(f"classifier.{name}.bias", "vector", (rows,), (bias,))


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
