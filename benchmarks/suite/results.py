"""Results of the suite: medians, ratios, a Markdown table and a JSON record."""

from __future__ import annotations

__all__ = ("Result", "as_json", "as_markdown", "speedup")

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.interleaved import Sample
from benchmarks.suite.machine import MachineLimits
from benchmarks.suite.plan import Row


@dataclass(frozen=True, slots=True)
class Result:
    """The samples of one row of the plan."""

    row: Row
    samples: Mapping[str, Sequence[Sample]]  #: By name of the engine; aiomlc comes first.
    limits: Sequence[MachineLimits]  #: Measured before each round.
    fractions: Sequence[float]  #: aiomlc's, of the limit before it; empty without a limit.

    def median(self, name: str) -> float | None:
        """Return an engine's median, or None if the engine has no samples."""
        samples = self.samples.get(name)
        return statistics.median(sample.value for sample in samples) if samples else None

    def ratio(self, engine: str, peer: str) -> float | None:
        """Return how many times better `engine` is than `peer`, or None without both medians."""
        return speedup(
            self.median(engine), self.median(peer), more_is_better=self.row.more_is_better
        )

    def ratios(self, engine: str, peer: str) -> list[float]:
        """Return the ratio of each round, without those of samples that are not positive."""
        rounds = zip(self.samples.get(engine, ()), self.samples.get(peer, ()), strict=False)
        ratios = (
            speedup(own.value, other.value, more_is_better=self.row.more_is_better)
            for own, other in rounds
        )
        return [ratio for ratio in ratios if ratio is not None]


def speedup(value: float | None, peer: float | None, *, more_is_better: bool) -> float | None:
    """Return how many times better `value` is than `peer`; None unless both are positive."""
    if value is None or peer is None or value <= 0 or peer <= 0:
        return None

    return value / peer if more_is_better else peer / value


def as_markdown(results: Sequence[Result], names: Sequence[str]) -> str:
    """Return a column per engine; ratios above 1 mean that the first engine is better.

    Ratios and fractions of the limit are medians, with the least and the largest of the rounds.
    """
    engine, peers = names[0], names[1:]
    heads = ["", "unit", engine]
    for peer in peers:
        heads += [peer, "ratio"]
    heads.append("fraction of limit")
    lines = [_line(heads), _line(["---"] * len(heads))]
    for result in results:
        cells = [result.row.title, result.row.unit, _format(result.median(engine))]
        for peer in peers:
            cells.append(_format(result.median(peer)))
            cells.append(_spread(result.ratio(engine, peer), result.ratios(engine, peer), ".2f"))
        fractions = result.fractions
        cells.append(_spread(statistics.median(fractions) if fractions else None, fractions, ".0%"))
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def as_json(
    results: Sequence[Result],
    names: Sequence[str],
    facts: Mapping[str, object],
) -> dict[str, Any]:
    """Return a JSON-serializable record with every sample, and load and limits before it."""
    rows = [
        {
            "name": result.row.name,
            "title": result.row.title,
            "unit": result.row.unit,
            "more_is_better": result.row.more_is_better,
            "median": {name: result.median(name) for name in result.samples},
            "ratio": {name: result.ratio(names[0], name) for name in names[1:]},
            "fractions_of_limit": list(result.fractions),
            "machine_limits": [asdict(limits) for limits in result.limits],
            "samples": {
                name: [asdict(sample) for sample in samples]
                for name, samples in result.samples.items()
            },
        }
        for result in results
    ]
    return {
        **facts,
        "engines": list(names),
        "rows": rows,
    }


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _spread(median: float | None, values: Sequence[float], spec: str) -> str:
    """Return a median with the extremes of the rounds, if there are several."""
    text = _format(median, spec)
    if len(values) < 2:
        return text

    return f"{text} ({_format(min(values), spec)} to {_format(max(values), spec)})"


def _format(value: float | None, spec: str = "") -> str:
    if value is None:
        return "-"

    if spec:
        return format(value, spec)

    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
