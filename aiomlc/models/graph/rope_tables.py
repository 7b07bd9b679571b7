"""The rotations of all layers as one row of numbers, and which part of it is a layer's."""

from __future__ import annotations

__all__ = ("Rotations", "rotations_of")

from dataclasses import dataclass

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.rope import RopeConfig


@dataclass(frozen=True, slots=True)
class Rotations:
    """Inverse frequencies and, behind them, what cosines and sines are multiplied by: of each kind
    of layer in turn."""

    numbers: tuple[float, ...]
    #: Of each layer where its part begins and how long it is; empty if all is every layer's.
    parts: tuple[tuple[int, int], ...]


def rotations_of(config: DecoderConfig) -> Rotations:
    """Those of a decoder."""
    if not config.layer_ropes:
        return Rotations(_numbers(config.rope, config.head_dim), ())

    numbers: list[float] = []
    parts: dict[RopeConfig | None, tuple[int, int]] = {}
    for rope in config.layer_ropes:
        if rope not in parts:
            part = _numbers(rope, config.head_dim)
            parts[rope] = (len(numbers), len(part))
            numbers.extend(part)
    return Rotations(tuple(numbers), tuple(parts[rope] for rope in config.layer_ropes))


def _numbers(rope: RopeConfig | None, head_dim: int) -> tuple[float, ...]:
    return (1.0,) if rope is None else (*rope.inverse_frequencies(head_dim), rope.amplitude)
