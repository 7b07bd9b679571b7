"""Rotary position embedding (RoPE): the frequencies of the rotary dimensions, and their scaling.

Sources: RoPE (arXiv:2104.09864), YaRN (arXiv:2309.00071), LongRoPE (arXiv:2402.13753). The linear
and `llama3` scaling follow transformers.
"""

from __future__ import annotations

__all__ = ("DEFAULT_THETA", "RopeConfig")

import math
from dataclasses import dataclass, replace
from typing import Self

DEFAULT_THETA = 10000.0


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """The base frequency and its scaling: `default`, `linear`, `llama3`, `yarn`, `longrope`,
    `proportional`, `axial` or `alternating`.

    With `axial`, of vision towers, both axes have the frequencies of half a head. With
    `alternating`, the frequencies of a whole head belong to one axis and the other in turn.

    With `proportional`, the frequencies are those of a whole head, of which only the first ones are
    rotated; pairs are half a head apart.
    """

    rope_type: str = "default"
    theta: float = DEFAULT_THETA
    factor: float = 1.0  #: Divisor of the frequencies.
    #: Pairs with fewer rotations within the original context are divided by the factor; `llama3`.
    low_freq_factor: float = 1.0
    #: Pairs with more rotations within the original context keep their frequency; `llama3`.
    high_freq_factor: float = 4.0
    original_context: int = 0  #: In tokens; `llama3`, `yarn` and `longrope`.
    #: Fraction of a head's dimensions that are rotated, from the first dimension on.
    partial_rotary_factor: float = 1.0
    attention_factor: float = 1.0  #: Factor on cosines and sines.
    beta_fast: float = 32.0  #: The same limit as `high_freq_factor`; `yarn`.
    beta_slow: float = 1.0  #: The same limit as `low_freq_factor`; `yarn`.
    truncate: bool = True  #: Whether the limits are rounded to whole pairs; `yarn`.
    #: Divisors of the pairs' frequencies within the original context; `longrope`.
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()  #: The same for longer sequences; `longrope`.
    uses_long_factors: bool = False  #: Whether sequences exceed the original context.
    #: Whether the two dimensions of a pair are half a head apart even with partial rotation. The
    #: frequencies of the other pairs are 0.
    pads_to_head_dim: bool = False
    #: Frequencies that multiply a position's time, height and width (M-RoPE); empty if a position
    #: has one number.
    sections: tuple[int, ...] = ()
    interleaves_sections: bool = False  #: Whether the axes alternate, or follow each other.

    def within(self, tokens: int) -> Self:
        """Return the settings for sequences of at most `tokens` tokens."""
        is_long = self.uses_long_factors and tokens > self.original_context
        return replace(self, uses_long_factors=is_long)

    def axes(self, head_dim: int) -> tuple[int, ...]:
        """Return the axis, 0 to 2, of the position that each frequency multiplies; empty if a
        position has one number."""
        if not (self.sections and self.interleaves_sections):
            return tuple(axis for axis, size in enumerate(self.sections) for _ in range(size))

        pairs = range(len(self.inverse_frequencies(head_dim)))
        return tuple(pair % 3 if pair < 3 * self.sections[pair % 3] else 0 for pair in pairs)

    def inverse_frequencies(self, head_dim: int) -> tuple[float, ...]:
        """Return radians per position for each rotated pair: `head_dim / 2` without partial
        rotation or with `pads_to_head_dim`."""
        size = int(head_dim * self.partial_rotary_factor)
        if self.rope_type == "axial":
            side = head_dim // 2
            return tuple(self.theta ** (-i / side) for i in range(0, side, 2)) * 2

        if self.rope_type == "alternating":
            plain = tuple(self.theta ** (-i / head_dim) for i in range(0, head_dim, 2))
            return plain[::2] + plain[1::2]

        if self.rope_type == "proportional":
            pairs = range(0, size // 2 * 2, 2)
            rotated = tuple(self.theta ** (-i / head_dim) / self.factor for i in pairs)
            return rotated + (0.0,) * (head_dim // 2 - len(rotated))

        rotated = self._scaled(size)
        padding = head_dim // 2 - len(rotated) if self.pads_to_head_dim else 0
        return rotated + (0.0,) * padding

    def _scaled(self, size: int) -> tuple[float, ...]:
        plain = tuple(self.theta ** (-i / size) for i in range(0, size, 2))
        match self.rope_type:
            case "linear":
                return tuple(frequency / self.factor for frequency in plain)
            case "llama3":
                return tuple(self._llama3(frequency) for frequency in plain)
            case "yarn":
                return self._yarn(plain, size)
            case "longrope":
                factors = self.long_factors if self.uses_long_factors else self.short_factors
                return tuple(f / factor for f, factor in zip(plain, factors, strict=True))
            case _:
                return plain

    def _llama3(self, frequency: float) -> float:
        """Divide low frequencies by the factor, keep high ones and blend those in between."""
        rotations = self.original_context * frequency / (2 * math.pi)
        if rotations < self.low_freq_factor:
            return frequency / self.factor

        if rotations > self.high_freq_factor:
            return frequency

        keep = (rotations - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return (1 - keep) * frequency / self.factor + keep * frequency

    def _yarn(self, plain: tuple[float, ...], size: int) -> tuple[float, ...]:
        """Blend as `llama3` does, but by a pair's index instead of its number of rotations."""
        low = self._pair_index(self.beta_fast, size)
        high = self._pair_index(self.beta_slow, size)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, size - 1)
        width = high - low or 0.001
        blend = [min(max((i - low) / width, 0.0), 1.0) for i in range(len(plain))]
        return tuple(
            scaled * frequency / self.factor + (1 - scaled) * frequency
            for scaled, frequency in zip(blend, plain, strict=True)
        )

    def _pair_index(self, rotations: float, size: int) -> float:
        """Return the index of the pair that makes `rotations` rotations in the original context."""
        wavelength = self.original_context / (rotations * 2 * math.pi)
        return size * math.log(wavelength) / (2 * math.log(self.theta))
