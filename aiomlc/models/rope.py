"""Rotary position embedding: its settings in a config, and the frequencies they mean."""

from __future__ import annotations

__all__ = ("RopeConfig", "parse_rope")

import math
from dataclasses import dataclass

from aiomlc.models.fields import Fields

_DEFAULT_THETA = 10000.0


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """The rotation's base and its scaling: `default`, `linear` or `llama3`."""

    rope_type: str = "default"
    theta: float = _DEFAULT_THETA
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 0  #: Tokens; `llama3` only.

    def inverse_frequencies(self, head_dim: int) -> tuple[float, ...]:
        """Radians per position of each of the `head_dim / 2` rotated pairs."""
        plain = (self.theta ** (-2.0 * i / head_dim) for i in range(head_dim // 2))
        if self.rope_type == "linear":
            return tuple(frequency / self.factor for frequency in plain)

        if self.rope_type == "llama3":
            return tuple(self._llama3(frequency) for frequency in plain)

        return tuple(plain)

    def _llama3(self, frequency: float) -> float:
        """Slow pairs are stretched by the factor, fast ones kept, those between blended."""
        turns = self.original_context * frequency / (2 * math.pi)
        if turns < self.low_freq_factor:
            return frequency / self.factor

        if turns > self.high_freq_factor:
            return frequency

        keep = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return (1 - keep) * frequency / self.factor + keep * frequency


def parse_rope(fields: Fields) -> RopeConfig:
    """Read the settings as transformers 5 writes them, as its forerunners did, or as MLC does."""
    name = "rope_parameters" if "rope_parameters" in fields else "rope_scaling"
    scaling = fields.nested(name)
    outer_theta = fields.number(
        "rope_theta", fields.number("position_embedding_base", _DEFAULT_THETA)
    )
    theta = scaling.number("rope_theta", outer_theta)
    for place in (fields, scaling):
        if place.number("partial_rotary_factor", 1.0) != 1.0:
            raise place.error("partial_rotary_factor", "is not 1.0, which is not supported")

    key = "rope_type" if "rope_type" in scaling else "type"
    kind = scaling.text(key, "default")
    match kind:
        case "default":
            return RopeConfig(theta=theta)
        case "linear":
            return RopeConfig("linear", theta, scaling.number("factor"))
        case "llama3":
            return _parse_llama3(scaling, theta)
        case _:
            raise scaling.error(key, f"is {kind!r}; supported: default, linear, llama3")


def _parse_llama3(scaling: Fields, theta: float) -> RopeConfig:
    rope = RopeConfig(
        "llama3",
        theta,
        scaling.number("factor"),
        scaling.number("low_freq_factor"),
        scaling.number("high_freq_factor"),
        scaling.integer("original_max_position_embeddings"),
    )
    if rope.high_freq_factor <= rope.low_freq_factor:
        raise scaling.error("high_freq_factor", "is not above low_freq_factor")

    return rope
