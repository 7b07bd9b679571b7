"""Peers that take batches of token ids and return complete outputs, each in its own process."""

from __future__ import annotations

__all__ = ("OfflinePeer", "PeerProgram")

import random
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from benchmarks.suite.measured_engine import Meter
from benchmarks.suite.peers.peer_process import PeerProcess
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Kind

_LOWEST_ID, _HIGHEST_ID = 300, 1900  # Plain text tokens in every vocabulary of the suite.
_ANSWER_TOKENS = 32
_COOLDOWN_SECONDS = 0.3  # OpenMP threads keep spinning for a while after a call.


@dataclass(frozen=True, slots=True)
class PeerProgram:
    """Command line and environment of a peer."""

    peer: str  #: Name known to `benchmarks.suite.peers.peer_server`.
    python: Path  #: The interpreter that has the peer installed.
    model: Path  #: The model in the peer's format.
    threads: int
    environment: Mapping[str, str] = field(default_factory=dict)  #: Added to this process's.

    def start(self) -> PeerProcess:
        args = (self.peer, str(self.model), str(self.threads))
        return PeerProcess(self.python, args, self.environment)


@final
class OfflinePeer:
    """A peer whose calls are timed; decode time is a long call minus a one-token call."""

    def __init__(self, name: str, program: PeerProgram) -> None:
        self.name = name
        self._program = program
        self._random = random.Random(0)
        self._warm_shapes: set[tuple[int, int]] = set()
        self._process = program.start()

    def meters(self) -> Mapping[Kind, Meter]:
        return {
            "load": lambda _: self._load_seconds(),
            "first-token": lambda size: 1e3 * self._call_seconds(1, size, 1),
            "prefill": lambda size: size / self._call_seconds(1, size, 1),
            "decode": lambda size: self._decode_rate(1, max(1, size), DECODE_TOKENS),
            "batch": lambda size: self._decode_rate(size, BATCH_PROMPT, BATCH_TOKENS),
            "memory": lambda _: self._peak_bytes() / 1e6,
        }

    def close(self) -> None:
        self._process.close()

    def _load_seconds(self) -> float:
        with closing(self._program.start()) as process:
            return process.load_seconds

    def _peak_bytes(self) -> int:
        with closing(self._program.start()) as process:
            return process.generate([[300, 301, 302]], _ANSWER_TOKENS).peak_bytes

    def _decode_rate(self, streams: int, context: int, tokens: int) -> float:
        first_token = self._call_seconds(streams, context, 1)
        return streams * tokens / (self._call_seconds(streams, context, tokens + 1) - first_token)

    def _call_seconds(self, streams: int, context: int, tokens: int) -> float:
        # The first call with a shape also compiles or allocates what later calls reuse.
        if (streams, context) not in self._warm_shapes:
            self._warm_shapes.add((streams, context))
            self._process.generate(self._prompts(streams, context), 2)

        seconds = self._process.generate(self._prompts(streams, context), tokens).seconds
        time.sleep(_COOLDOWN_SECONDS)
        return seconds

    def _prompts(self, streams: int, context: int) -> list[list[int]]:
        ids = range(_LOWEST_ID, _HIGHEST_ID)
        return [self._random.choices(ids, k=context) for _ in range(streams)]
