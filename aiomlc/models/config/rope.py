"""Rotary position embedding: how fast each pair of dimensions turns, and how far."""

from __future__ import annotations

__all__ = ("DEFAULT_THETA", "RopeConfig")

import math
from dataclasses import dataclass, replace
from typing import Self

DEFAULT_THETA = 10000.0


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """The rotation's base and its scaling: `default`, `linear`, `llama3`, `yarn` or `longrope`."""

    rope_type: str = "default"
    theta: float = DEFAULT_THETA
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 0  #: Tokens; `llama3`, `yarn` and `longrope` only.
    share: float = 1.0  #: Of a head's dimensions, from the first on; the others do not turn.
    amplitude: float = 1.0  #: What cosines and sines are multiplied by.
    beta_fast: float = 32.0  #: Turns within the original context; `yarn` only, as the next two.
    beta_slow: float = 1.0
    truncate: bool = True
    #: What each pair's frequency is divided by, within the original context; `longrope` only.
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()  #: The same for sequences beyond it.
    is_long: bool = False  #: Whether there are such sequences.
    #: Whether pairs are half a head apart even where a share turns: the others turn by nothing.
    fills_head: bool = False

    def within(self, tokens: int) -> Self:
        """The same for sequences of at most that many tokens."""
        return replace(self, is_long=self.is_long and tokens > self.original_context)

    def inverse_frequencies(self, head_dim: int) -> tuple[float, ...]:
        """Radians per position of each of the rotated pairs, `head_dim / 2` if all are."""
        turning = self._scaled(int(head_dim * self.share))
        still = head_dim // 2 - len(turning) if self.fills_head else 0
        return turning + (0.0,) * still

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
                factors = self.long_factors if self.is_long else self.short_factors
                return tuple(f / factor for f, factor in zip(plain, factors, strict=True))
            case _:
                return plain

    def _llama3(self, frequency: float) -> float:
        """Slow pairs are stretched by the factor, fast ones kept, those between blended."""
        turns = self.original_context * frequency / (2 * math.pi)
        if turns < self.low_freq_factor:
            return frequency / self.factor

        if turns > self.high_freq_factor:
            return frequency

        keep = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return (1 - keep) * frequency / self.factor + keep * frequency

    def _yarn(self, plain: tuple[float, ...], size: int) -> tuple[float, ...]:
        """As `llama3`, but blended by a pair's index, not by its turns."""
        low = self._rotated_pair(self.beta_fast, size)
        high = self._rotated_pair(self.beta_slow, size)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, size - 1)
        width = high - low or 0.001
        stretch = [min(max((i - low) / width, 0.0), 1.0) for i in range(len(plain))]
        return tuple(
            share * frequency / self.factor + (1 - share) * frequency
            for share, frequency in zip(stretch, plain, strict=True)
        )

    def _rotated_pair(self, turns: float, size: int) -> float:
        """The index of the pair that turns so often within the original context."""
        wavelength = self.original_context / (turns * 2 * math.pi)
        return size * math.log(wavelength) / (2 * math.log(self.theta))
