"""The RoPE settings of all layers as one flat row of numbers, and the slice of each layer."""

from __future__ import annotations

__all__ = ("RopeTable", "rope_table")

from dataclasses import dataclass

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.layers import AttentionConfig


@dataclass(frozen=True, slots=True)
class RopeTable:
    """For each distinct RoPE setting: its inverse frequencies, then its attention factor."""

    values: tuple[float, ...]
    #: By layer of the KV cache: `(offset, length)` of its slice of `values`; length 0 if all layers
    #: use all of it.
    layer_slices: tuple[tuple[int, int], ...]


def rope_table(config: DecoderConfig) -> RopeTable:
    """Return the RoPE table of a decoder."""
    rows = [_values(attention) for attention in config.attention]
    distinct = list(dict.fromkeys(rows))
    if len(distinct) == 1:
        return RopeTable(distinct[0], ((0, 0),) * len(rows))

    offsets = {row: sum(map(len, distinct[:index])) for index, row in enumerate(distinct)}
    values = tuple(value for row in distinct for value in row)
    return RopeTable(values, tuple((offsets[row], len(row)) for row in rows))


def _values(attention: AttentionConfig) -> tuple[float, ...]:
    rope = attention.rope
    if rope is None:
        return (1.0,)

    return (*rope.inverse_frequencies(attention.head_dim), rope.attention_factor)
