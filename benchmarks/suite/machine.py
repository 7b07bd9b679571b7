"""Limits of the machine, measured by a small C++ program that is compiled for it."""

from __future__ import annotations

__all__ = ("MachineLimits", "build_probe", "measure_limits")

import json
import shutil
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.suite.measured_engine import UnavailableError

_SOURCE = Path(__file__).with_name("machine_limits.cc")
_FLAGS = ("-std=gnu++20", "-O3", "-march=native", "-pthread")


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Peak rates with the suite's number of threads; None if the processor lacks the unit."""

    dram_read_gb_s: float
    int8_vnni_gop_s: float | None
    int8_amx_gop_s: float | None
    f32_fma_gflop_s: float

    @property
    def int8_gop_s(self) -> float | None:
        """Rate of the faster int8 unit, or None if the processor has none."""
        return max((x for x in (self.int8_vnni_gop_s, self.int8_amx_gop_s) if x), default=None)


def build_probe(work: Path) -> Path:
    """Compile the program into the directory `work`, and return its path.

    Raises:
        UnavailableError: If g++ is missing.
    """
    if shutil.which("g++") is None:
        raise UnavailableError("g++ is missing: it compiles machine_limits.cc for this machine")

    program = work / "machine_limits"
    subprocess.run(["g++", *_FLAGS, _SOURCE, "-o", program], check=True)
    return program


def measure_limits(program: Path, threads: int) -> MachineLimits:
    """Run the program once and return its results."""
    command: list[str | Path] = [program, str(threads)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    values = json.loads(result.stdout)
    return MachineLimits(**{field.name: values[field.name] for field in fields(MachineLimits)})
