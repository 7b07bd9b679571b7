"""The time limits of a request while it is prepared: before the core has it."""

from __future__ import annotations

__all__ = ("Elapsed", "time_limit")

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from anyio import current_time, move_on_after

from aiomlc.errors import DeadlineExceededError
from aiomlc.sampling_params import SamplingParams


@final
class Elapsed:
    """The time since a request was submitted."""

    def __init__(self) -> None:
        self._start = current_time()

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return current_time() - self._start


@contextmanager
def time_limit(request: SamplingParams, request_id: str) -> Iterator[Elapsed]:
    """Limit the preparation of a request to its `timeout` and `first_token_timeout`.

    Yields:
        The time since now, which counts towards the limits of the core.

    Raises:
        DeadlineExceededError: If a limit passes within the scope.
    """
    limits = {
        name: seconds
        for name in ("timeout", "first_token_timeout")
        if (seconds := getattr(request, name)) is not None
    }
    name = min(limits, key=limits.__getitem__, default=None)
    seconds = None if name is None else limits[name]
    with move_on_after(seconds) as scope:
        yield Elapsed()

    if name is not None and scope.cancelled_caught:
        raise DeadlineExceededError(request_id, limit=name, seconds=seconds)
