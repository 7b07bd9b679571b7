"""The parameters of an encoder (BERT's family)."""

from __future__ import annotations

__all__ = ("encoder_parameters",)

from collections.abc import Iterator

from aiomlc.models.config.encoder import EncoderConfig
from aiomlc.models.parameters.parameter import Parameter


def encoder_parameters(config: EncoderConfig) -> tuple[Parameter, ...]:
    """Every parameter of an encoder, by MLC's names (a matrix without its `.weight`)."""
    return tuple(_parameters(config))


def _parameters(config: EncoderConfig) -> Iterator[Parameter]:
    hidden, inner = config.hidden_size, config.intermediate_size
    yield _table("embeddings.word_embeddings", config.vocab_size, hidden)
    yield _table("embeddings.position_embeddings", config.num_positions, hidden)
    yield _table("embeddings.token_type_embeddings", config.num_token_types, hidden)
    yield from _norm("embeddings.LayerNorm", hidden)
    for layer in range(config.num_hidden_layers):
        at = f"encoder.layer.{layer}"
        yield from _attention(f"{at}.attention.self", hidden)
        yield from _linear(f"{at}.attention.output.dense", hidden, hidden)
        yield from _norm(f"{at}.attention.output.LayerNorm", hidden)
        yield from _linear(f"{at}.intermediate.dense", hidden, inner)
        yield from _linear(f"{at}.output.dense", inner, hidden)
        yield from _norm(f"{at}.output.LayerNorm", hidden)


def _attention(at: str, hidden: int) -> Iterator[Parameter]:
    parts = [f"{at}.{part}" for part in ("query", "key", "value")]
    weights = tuple(f"{part}.weight" for part in parts)
    biases = tuple(f"{part}.bias" for part in parts)
    yield Parameter(f"{at}.qkv", "matrix", (3 * hidden, hidden), weights)
    yield Parameter(f"{at}.qkv.bias", "vector", (3 * hidden,), biases)


def _linear(name: str, inputs: int, outputs: int) -> Iterator[Parameter]:
    yield _table(name, outputs, inputs)
    yield _vector(f"{name}.bias", outputs)


def _norm(name: str, size: int) -> Iterator[Parameter]:
    yield _vector(f"{name}.weight", size)
    yield _vector(f"{name}.bias", size)


def _table(name: str, rows: int, columns: int) -> Parameter:
    return Parameter(name, "matrix", (rows, columns), (f"{name}.weight",))


def _vector(name: str, size: int) -> Parameter:
    return Parameter(name, "vector", (size,), (name,))
