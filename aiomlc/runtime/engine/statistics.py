"""The records that make up an engine's statistics."""

from __future__ import annotations

__all__ = (
    "NO_VALUES",
    "DecodeSteps",
    "DraftPosition",
    "FinishedRequest",
    "Histogram",
    "RequestTiming",
)

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of values; an empty one has no buckets."""

    #: The upper bounds of the buckets, ascending; the last bucket has no bound.
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()  #: Not cumulative; one more than `bounds`.
    sum: float = 0.0  #: The sum of the values.

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)


NO_VALUES = Histogram()


class RequestTiming(NamedTuple):
    """Times of a sequence in seconds since its submission; None for events that did not happen."""

    queue: float | None  #: Until it was first scheduled.
    first_token: float | None
    total: float  #: Until its end.
    forced_tokens: int = 0  #: Tokens that a grammar forced, which took no sampling.


class DecodeSteps(NamedTuple):
    """The steps of one batch size: their number and seconds, as a whole or for one phase."""

    num_steps: int
    seconds: float


class DraftPosition(NamedTuple):
    """Draft tokens at one position of their drafts."""

    proposed: int
    accepted: int


class FinishedRequest(NamedTuple):
    """A sequence that completed normally."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  #: Prompt tokens that were taken from the prefix cache.
    timing: RequestTiming
