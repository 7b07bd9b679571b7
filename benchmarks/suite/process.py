"""Programs and fresh interpreters, with their peak memory."""

from __future__ import annotations

__all__ = ("Finished", "find_tool", "run_fresh", "run_tool")

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

from benchmarks.suite.contestant import Setup, UnavailableError

_POLL_SECONDS = 0.005
_ERROR_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that has ended well."""

    output: str
    began: float  #: By `time.monotonic`, which all processes share.
    seconds: float
    peak_bytes: int  #: Most memory ever resident, mapped files included; 0 if nobody watched.


def find_tool(folder: Path, name: str) -> Path:
    """A program in a folder.

    Raises:
        UnavailableError: it is not there.
    """
    path = folder / name
    if not path.is_file():
        raise UnavailableError(f"{path} is missing: build the target {name} of llama.cpp")

    return path


def run_tool(command: Sequence[str | Path], *, watch: bool = False) -> Finished:
    """Run a program to its end; watching its memory takes a little of the processor.

    Raises:
        RuntimeError: it failed; the message holds the end of what it said.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        began = time.monotonic()
        with subprocess.Popen(command, stdout=output, stderr=errors) as process:
            peak = _watch(process) if watch else 0
            process.wait()
            seconds = time.monotonic() - began

        if process.returncode != 0:
            words = " ".join(str(word) for word in command)
            said = _read(errors)[-_ERROR_CHARACTERS:]
            raise RuntimeError(f"{words} ended with {process.returncode}:\n{said}")

        return Finished(_read(output), began, seconds, peak)


def run_fresh(setup: Setup, *, watch: bool = False) -> tuple[Finished, float]:
    """Let aiomlc open a model and answer in a fresh interpreter; also returns the seconds until it
    was open.

    Raises:
        RuntimeError: it failed; the message holds the end of what it said.
    """
    finished = run_tool(
        [
            *(sys.executable, "-m", "benchmarks.suite.fresh", str(setup.model)),
            *(str(setup.threads), setup.quantization),
        ],
        watch=watch,
    )
    ready = float(json.loads(finished.output.splitlines()[-1])["ready"])
    return finished, ready - finished.began


def _watch(process: subprocess.Popen[bytes]) -> int:
    # A child's `ru_maxrss` begins with the parent's, so the child's own counter is read instead.
    status = Path(f"/proc/{process.pid}/status")
    peak = 0
    while process.poll() is None:
        found = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(encoding="utf-8"), re.MULTILINE)
        peak = max(peak, int(found[1]) * 1024 if found else 0)
        time.sleep(_POLL_SECONDS)
    return peak


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
