"""llama.cpp through its benchmark programs, each run in a fresh process."""

from __future__ import annotations

__all__ = ("LlamaCppPeer", "gguf_type")

import json
from collections.abc import Mapping
from pathlib import Path
from typing import final

from benchmarks.suite.measured_engine import Meter, Setup, UnavailableError
from benchmarks.suite.peers.llama_bench import LlamaBench
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Kind
from benchmarks.suite.process import find_tool, run_tool

_GGUF_TYPES = {"q4f16_1": "q4_0", "q0bf16": "bf16", "q0f32": "f32"}
_SEQUENCE_CELLS = 256  # llama.cpp gives each sequence a multiple of this in its KV cache.


def gguf_type(quantization: str) -> str:
    """Return the GGUF type nearest to a quantization of aiomlc.

    Raises:
        UnavailableError: If llama.cpp has no similar type.
    """
    if quantization not in _GGUF_TYPES:
        raise UnavailableError(f"llama.cpp has no type similar to {quantization!r}")

    return _GGUF_TYPES[quantization]


@final
class LlamaCppPeer:
    """llama.cpp, measured by `llama-bench` for one stream, `llama-batched-bench` for several."""

    def __init__(self, setup: Setup, binaries: Path, gguf: Path, kind: str) -> None:
        self.name = f"llama.cpp {kind}"
        self._threads = str(setup.threads)
        self._gguf = gguf
        self._bench = LlamaBench(binaries, gguf, setup.threads)
        self._batched_bench = find_tool(binaries, "llama-batched-bench")

    def meters(self) -> Mapping[Kind, Meter]:
        test = self._bench.test
        return {
            # The process only starts, loads the model and runs this one test.
            "load": lambda _: self._bench.load_seconds(("--no-warmup",)),
            "first-token": lambda size: test("-p", size, "-n", 0)["avg_ns"] / 1e6,
            "prefill": lambda size: test("-p", size, "-n", 0)["avg_ts"],
            "decode": lambda size: test("-p", 0, "-n", DECODE_TOKENS, "-d", size)["avg_ts"],
            "batch": self._batch_rate,
            "memory": lambda _: self._bench.peak_bytes() / 1e6,
        }

    def close(self) -> None:
        """Do nothing: no process stays open."""

    def _batch_rate(self, sequences: int) -> float:
        # The program can exit before it has flushed its last line, so let it measure one more
        # batch size after the requested one.
        finished = run_tool(
            [
                *(self._batched_bench, "-m", self._gguf),
                *("-t", self._threads, "-tb", self._threads),
                *("-c", str(sequences * _SEQUENCE_CELLS), "-npl", f"{sequences},1"),
                *("-npp", str(BATCH_PROMPT), "-ntg", str(BATCH_TOKENS)),
                *("--output-format", "jsonl"),
            ]
        )
        lines = [line for line in finished.output.splitlines() if line.startswith("{")]
        if not lines:
            raise RuntimeError(f"{self._batched_bench} printed no result: {finished.output}")

        return float(json.loads(lines[0])["speed_tg"])
