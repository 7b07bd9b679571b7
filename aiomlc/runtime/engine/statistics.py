"""What an engine counted and how long things took, as frozen records."""

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
    """How values are distributed. An empty one has no buckets."""

    bounds: tuple[float, ...] = ()  #: Ascending, the greatest value of each bucket but the last.
    counts: tuple[int, ...] = ()  #: Of each bucket alone; one more than `bounds`.
    sum: float = 0.0  #: Of all values.

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)


NO_VALUES = Histogram()


class RequestTiming(NamedTuple):
    """Seconds since a sequence was submitted; None is what never came.

    Beside them is what took no time: the tokens that a grammar forced.
    """

    queue: float | None  #: Until it was first given room in the KV cache.
    first_token: float | None
    total: float  #: Until its end.
    forced_tokens: int = 0


class DecodeSteps(NamedTuple):
    """Steps of one batch size that only decoded, or a part of each."""

    num_steps: int
    seconds: float


class DraftPosition(NamedTuple):
    """Guessed tokens in one place of their drafts."""

    guessed: int
    right: int


class FinishedRequest(NamedTuple):
    """A sequence that ended with an answer."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  #: Prompt tokens that were in the KV cache already.
    timing: RequestTiming
