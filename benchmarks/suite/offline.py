"""Rivals that take token ids and return when every answer is whole."""

from __future__ import annotations

__all__ = ("Generate", "OfflineContestant")

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, final

from benchmarks.suite.contestant import Meter, Setup
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Kind
from benchmarks.suite.process import run_fresh

_LOWEST_ID, _HIGHEST_ID = 300, 1900  # Plain tokens of every vocabulary that the suite makes.


class Generate(Protocol):
    """Answer prompts of token ids, all at once, with exactly that many tokens each."""

    def __call__(self, prompts: Sequence[Sequence[int]], tokens: int) -> None: ...


@final
class OfflineContestant:
    """Times whole calls; decoding is a long call less one that ends after the first token."""

    def __init__(
        self, key: str, name: str, setup: Setup, open_engine: Callable[[Setup], Generate]
    ) -> None:
        self.name = name
        self._key = key
        self._setup = setup
        self._random = random.Random(0)
        self._generate: Generate | None = open_engine(setup)
        self._seconds(1, BATCH_PROMPT, 4)

    def meters(self) -> Mapping[Kind, Meter]:
        return {
            "load": lambda _: run_fresh(self._key, self._setup)[1],
            "first-token": lambda size: 1e3 * self._seconds(1, size, 1),
            "prefill": lambda size: size / self._seconds(1, size, 1),
            "decode": lambda size: self._decode(1, max(1, size), DECODE_TOKENS),
            "batch": lambda size: self._decode(size, BATCH_PROMPT, BATCH_TOKENS),
            "memory": lambda _: run_fresh(self._key, self._setup, watch=True)[0].peak_bytes / 1e6,
        }

    def close(self) -> None:
        self._generate = None

    def _decode(self, streams: int, context: int, tokens: int) -> float:
        first = self._seconds(streams, context, 1)
        return streams * tokens / (self._seconds(streams, context, tokens + 1) - first)

    def _seconds(self, streams: int, context: int, tokens: int) -> float:
        assert self._generate is not None, "it is not closed"
        ids = range(_LOWEST_ID, _HIGHEST_ID)
        prompts = [self._random.choices(ids, k=context) for _ in range(streams)]
        began = time.perf_counter()
        self._generate(prompts, tokens)
        return time.perf_counter() - began
