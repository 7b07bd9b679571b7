"""llama.cpp through its own programs, each run in a process of its own."""

from __future__ import annotations

__all__ = ("LlamaCppContestant", "gguf_type")

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from benchmarks.suite.contestant import Meter, Setup, UnavailableError
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Kind
from benchmarks.suite.process import Finished, find_tool, run_tool

_GGUF_TYPES = {"q4f16_1": "q4_0", "q0bf16": "bf16", "q0f32": "f32"}
_LOAD_PROMPT, _ANSWER_TOKENS = 1, 32
_SEQUENCE_CELLS = 256  # Its KV cache gives each sequence a multiple of this.


def gguf_type(quantization: str) -> str:
    """The format nearest to one of aiomlc's.

    Raises:
        UnavailableError: there is none.
    """
    if quantization not in _GGUF_TYPES:
        raise UnavailableError(f"llama.cpp has nothing like {quantization!r}")

    return _GGUF_TYPES[quantization]


@final
class LlamaCppContestant:
    """`llama-bench` for one stream, `llama-batched-bench` for several."""

    def __init__(self, setup: Setup, binaries: Path, gguf: Path) -> None:
        self.name = f"llama.cpp {gguf_type(setup.quantization)}"
        self._threads = str(setup.threads)
        self._gguf = gguf
        self._bench = find_tool(binaries, "llama-bench")
        self._batched_bench = find_tool(binaries, "llama-batched-bench")

    def meters(self) -> Mapping[Kind, Meter]:
        return {
            "load": lambda _: self._load(),
            "first-token": lambda size: self._one_test("-p", size, "-n", 0)["avg_ns"] / 1e6,
            "prefill": lambda size: self._one_test("-p", size, "-n", 0)["avg_ts"],
            "decode": lambda size: self._one_test("-p", 0, "-n", DECODE_TOKENS, "-d", size)[
                "avg_ts"
            ],
            "batch": self._batch,
            "memory": lambda _: self._peak_bytes() / 1e6,
        }

    def close(self) -> None:
        """Nothing stays open."""

    def _load(self) -> float:
        # The process does nothing else than to start, load, and run this one test.
        finished = self._run("-p", _LOAD_PROMPT, "-n", 0, "--no-warmup")
        test_seconds = float(_tests(finished)[0]["avg_ns"]) / 1e9
        return finished.seconds - test_seconds

    def _peak_bytes(self) -> int:
        return self._run("-p", 0, "-n", 0, "-pg", f"32,{_ANSWER_TOKENS}", watch=True).peak_bytes

    def _batch(self, sequences: int) -> float:
        # The program can end before its last line is written, so it measures a single sequence
        # after those that are asked for.
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

    def _one_test(self, *options: str | int) -> Mapping[str, float]:
        return _tests(self._run(*options))[0]

    def _run(self, *options: str | int, watch: bool = False) -> Finished:
        settings = ("-t", self._threads, "-r", "1", "-o", "json")
        words = (str(option) for option in options)
        return run_tool([self._bench, "-m", self._gguf, *settings, *words], watch=watch)


def _tests(finished: Finished) -> list[dict[str, Any]]:
    tests: list[dict[str, Any]] = json.loads(finished.output)
    if not tests:
        raise RuntimeError("llama-bench printed no result")

    return tests
