"""ik_llama.cpp, a fork of llama.cpp with CPU kernels of its own, through its benchmark programs."""

from __future__ import annotations

__all__ = ("IkLlamaCppPeer", "batch_rate")

from collections.abc import Mapping
from pathlib import Path
from typing import final

from benchmarks.suite.measured_engine import Meter, Setup
from benchmarks.suite.peers.llama_bench import LlamaBench
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Kind
from benchmarks.suite.process import find_tool, run_tool

# Columns of `llama-batched-bench`.
_SEQUENCES, _GENERATED_PER_SECOND = 2, 7
_NUM_COLUMNS = 10


@final
class IkLlamaCppPeer:
    """ik_llama.cpp on a GGUF file that llama.cpp has quantized, each measurement in a process.

    It interleaves rows of the weights when it loads them (`--run-time-repack`), as its
    documentation recommends for CPUs.
    """

    def __init__(self, setup: Setup, binaries: Path, gguf: Path, kind: str) -> None:
        self.name = f"ik_llama.cpp {kind}"
        self._threads = str(setup.threads)
        self._gguf = gguf
        self._bench = LlamaBench(binaries, gguf, setup.threads, "-rtr", "1")
        self._batched_bench = find_tool(binaries, "llama-batched-bench")

    def meters(self) -> Mapping[Kind, Meter]:
        test = self._bench.test
        return {
            "load": lambda _: self._bench.load_seconds(("-w", 0)),
            "first-token": lambda size: test("-p", size, "-n", 0)["avg_ns"] / 1e6,
            "prefill": lambda size: test("-p", size, "-n", 0)["avg_ts"],
            "decode": self._decode_rate,
            "batch": self._batch_rate,
            "memory": lambda _: self._bench.peak_bytes() / 1e6,
        }

    def close(self) -> None:
        """Do nothing: no process stays open."""

    def _decode_rate(self, context: int) -> float:
        # It has no option for a context that is not timed with `-n` alone.
        context_options = ("-n", 0, "-gp", f"{context},{DECODE_TOKENS}")
        options = context_options if context else ("-n", DECODE_TOKENS)
        return self._bench.test("-p", 0, *options)["avg_ts"]

    def _batch_rate(self, sequences: int) -> float:
        cells = sequences * (BATCH_PROMPT + BATCH_TOKENS)
        finished = run_tool(
            [
                *(self._batched_bench, "-m", self._gguf, "-rtr"),
                *("-t", self._threads, "-tb", self._threads),
                *("-c", str(cells), "-npl", str(sequences)),
                *("-npp", str(BATCH_PROMPT), "-ntg", str(BATCH_TOKENS)),
            ]
        )
        return batch_rate(f"{finished.output}\n{finished.errors}", sequences)


def batch_rate(output: str, sequences: int) -> float:
    """Return the generated tokens per second from the table of `llama-batched-bench`.

    Raises:
        RuntimeError: If the table has no row for that number of sequences.
    """
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == _NUM_COLUMNS and cells[_SEQUENCES] == str(sequences):
            return float(cells[_GENERATED_PER_SECOND])

    raise RuntimeError(f"llama-batched-bench printed no row of {sequences} sequences: {output}")
