"""Rivals, each in its process, that take token ids and return when every answer is whole."""

from __future__ import annotations

__all__ = ("OfflineContestant", "Program")

import random
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from benchmarks.suite.contestant import Meter
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Kind
from benchmarks.suite.rival_process import RivalProcess

_LOWEST_ID, _HIGHEST_ID = 300, 1900  # Plain tokens of every vocabulary that the suite makes.
_ANSWER_TOKENS = 32
_SETTLE_SECONDS = 0.3  # Threads of OpenMP spin on for a while after an answer.


@dataclass(frozen=True, slots=True)
class Program:
    """How a rival is started."""

    rival: str  #: Of those that `benchmarks.suite.serve` knows.
    python: Path  #: The interpreter that has it installed.
    model: Path  #: In the rival's own form.
    threads: int
    environment: Mapping[str, str] = field(default_factory=dict)  #: Beside ours.

    def start(self) -> RivalProcess:
        words = (self.rival, str(self.model), str(self.threads))
        return RivalProcess(self.python, words, self.environment)


@final
class OfflineContestant:
    """Times whole calls; decoding is a long call less one that ends after the first token."""

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self._program = program
        self._random = random.Random(0)
        self._seen: set[tuple[int, int]] = set()
        self._process = program.start()

    def meters(self) -> Mapping[Kind, Meter]:
        return {
            "load": lambda _: self._load(),
            "first-token": lambda size: 1e3 * self._seconds(1, size, 1),
            "prefill": lambda size: size / self._seconds(1, size, 1),
            "decode": lambda size: self._decode(1, max(1, size), DECODE_TOKENS),
            "batch": lambda size: self._decode(size, BATCH_PROMPT, BATCH_TOKENS),
            "memory": lambda _: self._peak_bytes() / 1e6,
        }

    def close(self) -> None:
        self._process.close()

    def _load(self) -> float:
        with closing(self._program.start()) as fresh:
            return fresh.load_seconds

    def _peak_bytes(self) -> int:
        with closing(self._program.start()) as fresh:
            return fresh.answer([[300, 301, 302]], _ANSWER_TOKENS).peak_bytes

    def _decode(self, streams: int, context: int, tokens: int) -> float:
        first = self._seconds(streams, context, 1)
        return streams * tokens / (self._seconds(streams, context, tokens + 1) - first)

    def _seconds(self, streams: int, context: int, tokens: int) -> float:
        # The first call of a shape also builds what the later ones find ready.
        if (streams, context) not in self._seen:
            self._seen.add((streams, context))
            self._process.answer(self._prompts(streams, context), 2)

        seconds = self._process.answer(self._prompts(streams, context), tokens).seconds
        time.sleep(_SETTLE_SECONDS)
        return seconds

    def _prompts(self, streams: int, context: int) -> list[list[int]]:
        ids = range(_LOWEST_ID, _HIGHEST_ID)
        return [self._random.choices(ids, k=context) for _ in range(streams)]
