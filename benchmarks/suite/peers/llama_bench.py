"""`llama-bench` of llama.cpp and of its forks, each run in a fresh process."""

from __future__ import annotations

__all__ = ("LlamaBench",)

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from benchmarks.suite.process import FinishedProcess, find_tool, run_tool

_LOAD_PROMPT, _ANSWER_TOKENS = 1, 32


@final
class LlamaBench:
    """`llama-bench` on one file.

    Args:
        binaries: The directory that has the program.
        gguf: The file.
        threads: The number of threads.
        settings: Further options of each run.
    """

    def __init__(self, binaries: Path, gguf: Path, threads: int, *settings: str) -> None:
        command = (find_tool(binaries, "llama-bench"), "-m", gguf, "-t", str(threads))
        self._command: tuple[str | Path, ...] = (*command, *settings, "-r", "1", "-o", "json")

    def test(self, *options: str | int) -> Mapping[str, float]:
        """Return the result of the only test that the options select."""
        return _parse_tests(self._run(*options))[0]

    def load_seconds(self, without_warmup: tuple[str | int, ...]) -> float:
        """Return the time to start and to load the model: that of a run without its one test."""
        finished = self._run("-p", _LOAD_PROMPT, "-n", 0, *without_warmup)
        return finished.seconds - float(_parse_tests(finished)[0]["avg_ns"]) / 1e9

    def peak_bytes(self) -> int:
        """Return the peak memory of a run that reads a prompt and answers."""
        options = ("-p", 0, "-n", 0, "-pg", f"32,{_ANSWER_TOKENS}")
        return self._run(*options, track_memory=True).peak_bytes

    def _run(self, *options: str | int, track_memory: bool = False) -> FinishedProcess:
        words = (str(option) for option in options)
        return run_tool([*self._command, *words], track_memory=track_memory)


def _parse_tests(finished: FinishedProcess) -> list[dict[str, Any]]:
    # Some print notes about the device before the JSON.
    start = finished.output.find("[\n")
    tests: list[dict[str, Any]] = json.loads(finished.output[start:]) if start >= 0 else []
    if not tests:
        raise RuntimeError(f"llama-bench printed no result: {finished.output}")

    return tests
