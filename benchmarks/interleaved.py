"""Interleaved measurements, so that a change of the machine's speed affects all variants."""

from __future__ import annotations

__all__ = ("Sample", "processor", "report", "run_interleaved")

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of one variant."""

    value: float  #: In the unit of the benchmark.
    load: float  #: The one-minute load average before the measurement.


def run_interleaved(
    variants: Mapping[str, Callable[[], float]],
    rounds: int,
    before_round: Callable[[], object] = lambda: None,
) -> dict[str, list[Sample]]:
    """Call each variant once per round, in the given order, and return the samples by name."""
    samples: dict[str, list[Sample]] = {name: [] for name in variants}
    for number in range(rounds):
        before_round()
        for name, measure in variants.items():
            load = os.getloadavg()[0]
            samples[name].append(Sample(measure(), round(load, 2)))
            print(
                f"round {number + 1}/{rounds}: {name} {samples[name][-1].value:.2f}",
                file=sys.stderr,
            )

    return samples


def report(title: str, unit: str, samples: Mapping[str, list[Sample]], **facts: object) -> None:
    """Print a table with the ratios to the last variant, and the same as one line of JSON."""
    medians = {name: statistics.median(s.value for s in row) for name, row in samples.items()}
    reference = list(medians)[-1]
    print(f"{title}\n\n| | {unit} (median) | min | max | ratio |\n|---|---|---|---|---|")
    for name, row in samples.items():
        values = [sample.value for sample in row]
        ratio = medians[name] / medians[reference]
        extremes = f"{min(values):.2f} | {max(values):.2f}"
        print(f"| {name} | {medians[name]:.2f} | {extremes} | {ratio:.3f} |")

    record = {
        "title": title,
        "unit": unit,
        "machine": processor(),
        "median": medians,
        "ratio": {name: median / medians[reference] for name, median in medians.items()},
        "samples": {name: [[s.value, s.load] for s in row] for name, row in samples.items()},
        **facts,
    }
    print("\n" + json.dumps(record))


def processor() -> str:
    """Return the name and the number of the processors."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} processors"
