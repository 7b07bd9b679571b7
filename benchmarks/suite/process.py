"""Subprocesses: programs and fresh interpreters, with their duration and peak memory."""

from __future__ import annotations

__all__ = ("FinishedProcess", "find_tool", "run_fresh", "run_tool")

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.suite.measured_engine import Setup, UnavailableError

_POLL_SECONDS = 0.005
_MAX_ERROR_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class FinishedProcess:
    """Output and cost of a process that exited with status 0."""

    output: str
    errors: str  #: What it wrote to stderr.
    start: float  #: By `time.monotonic`, which all processes share.
    seconds: float
    peak_bytes: int  #: Peak resident memory, mapped files included; 0 if it was not tracked.


def find_tool(directory: Path, name: str) -> Path:
    """Return the path of a program of llama.cpp in a directory.

    Raises:
        UnavailableError: If the program is missing.
    """
    path = directory / name
    if not path.is_file():
        raise UnavailableError(f"{path} is missing: build the target {name} of llama.cpp")

    return path


def run_tool(command: Sequence[str | Path], *, track_memory: bool = False) -> FinishedProcess:
    """Run a program to completion; tracking its memory costs a little CPU time.

    Raises:
        RuntimeError: If the program failed; the message has the end of its stderr.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start = time.monotonic()
        with subprocess.Popen(command, stdout=output, stderr=errors) as process:
            peak = _track_memory(process) if track_memory else 0
            process.wait()
            seconds = time.monotonic() - start

        if process.returncode != 0:
            words = " ".join(str(word) for word in command)
            stderr = _read(errors)[-_MAX_ERROR_CHARACTERS:]
            raise RuntimeError(f"{words} exited with status {process.returncode}:\n{stderr}")

        return FinishedProcess(_read(output), _read(errors), start, seconds, peak)


def run_fresh(setup: Setup, *, track_memory: bool = False) -> tuple[FinishedProcess, float]:
    """Let aiomlc open a model and answer in a fresh interpreter.

    Returns:
        The finished process, and the seconds from its start until the model was ready.

    Raises:
        RuntimeError: If the process failed; the message has the end of its stderr.
    """
    finished = run_tool(
        [
            *(sys.executable, "-m", "benchmarks.suite.fresh_process", str(setup.path)),
            *(str(setup.threads), setup.path_quantization or ""),
        ],
        track_memory=track_memory,
    )
    ready = float(json.loads(finished.output.splitlines()[-1])["ready"])
    return finished, ready - finished.start


def _track_memory(process: subprocess.Popen[bytes]) -> int:
    # A child's `ru_maxrss` starts at its parent's, so poll the child's VmHWM counter instead.
    status = Path(f"/proc/{process.pid}/status")
    peak = 0
    while process.poll() is None:
        match = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(encoding="utf-8"), re.MULTILINE)
        peak = max(peak, int(match[1]) * 1024 if match else 0)
        time.sleep(_POLL_SECONDS)
    return peak


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
