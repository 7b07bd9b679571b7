"""ik_llama.cpp, a fork of llama.cpp with CPU kernels of its own, through its benchmark programs."""

from __future__ import annotations

__all__ = ("IkLlamaCppPeer", "batch_rate")

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from benchmarks.suite.measured_engine import Meter, Setup
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Kind
from benchmarks.suite.process import FinishedProcess, find_tool, run_tool

_LOAD_PROMPT, _ANSWER_TOKENS = 1, 32
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
        self._bench = find_tool(binaries, "llama-bench")
        self._batched_bench = find_tool(binaries, "llama-batched-bench")

    def meters(self) -> Mapping[Kind, Meter]:
        return {
            "load": lambda _: self._load_seconds(),
            "first-token": lambda size: self._run_test("-p", size, "-n", 0)["avg_ns"] / 1e6,
            "prefill": lambda size: self._run_test("-p", size, "-n", 0)["avg_ts"],
            "decode": self._decode_rate,
            "batch": self._batch_rate,
            "memory": lambda _: self._peak_bytes() / 1e6,
        }

    def close(self) -> None:
        """Do nothing: no process stays open."""

    def _decode_rate(self, context: int) -> float:
        # It has no option for a context that is not timed with `-n` alone.
        context_options = ("-n", 0, "-gp", f"{context},{DECODE_TOKENS}")
        options = context_options if context else ("-n", DECODE_TOKENS)
        return self._run_test("-p", 0, *options)["avg_ts"]

    def _load_seconds(self) -> float:
        finished = self._run_bench("-p", _LOAD_PROMPT, "-n", 0, "-w", 0)
        test_seconds = float(_parse_tests(finished)[0]["avg_ns"]) / 1e9
        return finished.seconds - test_seconds

    def _peak_bytes(self) -> int:
        options = ("-p", 0, "-n", 0, "-pg", f"32,{_ANSWER_TOKENS}")
        return self._run_bench(*options, track_memory=True).peak_bytes

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

    def _run_test(self, *options: str | int) -> Mapping[str, float]:
        return _parse_tests(self._run_bench(*options))[0]

    def _run_bench(self, *options: str | int, track_memory: bool = False) -> FinishedProcess:
        settings = ("-t", self._threads, "-rtr", "1", "-r", "1", "-o", "json")
        words = (str(option) for option in options)
        command: list[str | Path] = [self._bench, "-m", self._gguf, *settings, *words]
        return run_tool(command, track_memory=track_memory)


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


def _parse_tests(finished: FinishedProcess) -> list[dict[str, Any]]:
    # It prints notes about the device before the JSON.
    start = finished.output.find("[\n")
    tests: list[dict[str, Any]] = json.loads(finished.output[start:]) if start >= 0 else []
    if not tests:
        raise RuntimeError(f"llama-bench printed no result: {finished.output}")

    return tests
