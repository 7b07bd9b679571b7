"""The RoPE settings of all layers as one flat row of numbers, and the slice of each layer."""

from __future__ import annotations

__all__ = ("RopeTable", "rope_table")

from dataclasses import dataclass

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.rope import RopeConfig


@dataclass(frozen=True, slots=True)
class RopeTable:
    """For each distinct RoPE setting: its inverse frequencies, then its attention factor."""

    values: tuple[float, ...]
    #: `(offset, length)` of each layer's slice of `values`; empty if every layer uses all of it.
    layer_slices: tuple[tuple[int, int], ...]


def rope_table(config: DecoderConfig) -> RopeTable:
    """Return the RoPE table of a decoder."""
    if not config.layer_ropes:
        return RopeTable(_values(config.rope, config.head_dim), ())

    values: list[float] = []
    slices: dict[RopeConfig | None, tuple[int, int]] = {}
    for rope in config.layer_ropes:
        if rope not in slices:
            layer_values = _values(rope, config.head_dim)
            slices[rope] = (len(values), len(layer_values))
            values.extend(layer_values)
    return RopeTable(tuple(values), tuple(slices[rope] for rope in config.layer_ropes))


def _values(rope: RopeConfig | None, head_dim: int) -> tuple[float, ...]:
    if rope is None:
        return (1.0,)

    return (*rope.inverse_frequencies(head_dim), rope.attention_factor)
