"""A load of chats at a rate, and how long they take: `aiomlc bench`."""

from __future__ import annotations

__all__ = ("Load", "LoadResult", "percentiles", "run_load")

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, final

from anyio import CapacityLimiter, create_task_group, sleep_until
from anyio import current_time as now

#: `chat.completions.create` of an engine, or of OpenAI's client.
Create = Callable[..., Awaitable[Any]]

_WORDS = (
    *("river", "stone", "garden", "winter", "letter", "window", "market", "silver", "forest"),
    *("bridge", "candle", "island", "mirror", "pocket", "shadow", "summer", "tunnel", "valley"),
)
_PERCENTS = (50, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests of a measurement."""

    number: int  #: Requests in all.
    rate: float  #: Requests per second, at random moments (a Poisson process); infinite: at once.
    concurrency: int  #: The most requests at once; more wait, and their time counts.
    prompt_words: int  #: Random words of each prompt.
    max_tokens: int  #: Tokens of each answer, at most.
    fixed_length: bool  #: Whether answers have as many tokens as allowed (by `min_tokens`).
    seed: int = 0

    def arrivals(self) -> Iterator[float]:
        """Yield the seconds after the start at which the requests are sent."""
        random, moment = Random(self.seed), 0.0
        for _ in range(self.number):
            yield moment
            moment += 0.0 if math.isinf(self.rate) else random.expovariate(self.rate)

    def fields(self, index: int) -> Mapping[str, Any]:
        """Return the fields of a request; no two begin alike, so that no cache helps."""
        random = Random(f"{self.seed} {index}")
        content = " ".join([str(index), *random.choices(_WORDS, k=self.prompt_words)])
        fields: dict[str, Any] = {
            "messages": [{"role": "user", "content": content}],
            "max_tokens": self.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return (
            {**fields, "extra_body": {"min_tokens": self.max_tokens}}
            if self.fixed_length
            else fields
        )


@dataclass(slots=True)
class LoadResult:
    """The measurements; times in seconds."""

    seconds: float = 0.0  #: From the first request to the last end.
    completed: int = 0
    prompt_tokens: int = 0  #: Of the completed requests.
    completion_tokens: int = 0
    first_token: list[float] = field(default_factory=list)  #: From when a request was due.
    between_tokens: list[float] = field(default_factory=list)  #: Between chunks with text.
    end_to_end: list[float] = field(default_factory=list)  #: From when a request was due.
    errors: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Return the figures: rates per second, and percentiles in milliseconds."""
        seconds = self.seconds or math.inf
        return {
            "seconds": self.seconds,
            "completed": self.completed,
            "failed": len(self.errors),
            "requests_per_second": self.completed / seconds,
            "prompt_tokens_per_second": self.prompt_tokens / seconds,
            "completion_tokens_per_second": self.completion_tokens / seconds,
            "first_token_ms": percentiles(self.first_token),
            "between_tokens_ms": percentiles(self.between_tokens),
            "end_to_end_ms": percentiles(self.end_to_end),
        }


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return the nearest-rank percentiles of times in milliseconds; None if there are no times."""
    ordered = sorted(seconds)
    return {
        f"p{percent}": ordered[math.ceil(len(ordered) * percent / 100) - 1] * 1e3
        if ordered
        else None
        for percent in _PERCENTS
    }


async def run_load(create: Create, load: Load, failures: tuple[type[Exception], ...]) -> LoadResult:
    """Send the requests, and read their streams to the end.

    Args:
        create: Sends a chat; awaited, it gives a stream of OpenAI's chunks.
        load: The requests.
        failures: The exceptions of a request that fails; it is counted, and others continue.
    """
    run = _Run(create, load, failures)
    start = now()
    async with create_task_group() as tasks:
        for index, arrival in enumerate(load.arrivals()):
            await sleep_until(start + arrival)
            tasks.start_soon(run.send, index, start + arrival)

    run.result.seconds = now() - start
    return run.result


@final
class _Run:
    def __init__(self, create: Create, load: Load, failures: tuple[type[Exception], ...]) -> None:
        self.result = LoadResult()
        self._create = create
        self._load = load
        self._failures = failures
        self._limiter = CapacityLimiter(load.concurrency)

    async def send(self, index: int, due: float) -> None:
        """Send a request that was due at a time of the event loop's clock."""
        async with self._limiter:
            try:
                await self._read(self._load.fields(index), due)
            except self._failures as error:
                self.result.errors.append(f"{type(error).__name__}: {error}")

    async def _read(self, fields: Mapping[str, Any], due: float) -> None:
        result, last, usage = self.result, None, None
        async with await self._create(**fields) as chunks:
            async for chunk in chunks:
                usage = chunk.usage or usage
                if not any(choice.delta.content for choice in chunk.choices):
                    continue

                moment = now()
                if last is None:
                    result.first_token.append(moment - due)
                else:
                    result.between_tokens.append(moment - last)
                last = moment

        result.end_to_end.append(now() - due)
        result.completed += 1
        if usage is not None:
            result.prompt_tokens += usage.prompt_tokens
            result.completion_tokens += usage.completion_tokens
