"""What came out: medians, ratios, a table and a record."""

from __future__ import annotations

__all__ = ("Result", "as_json", "as_markdown", "better_by")

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.interleaved import Sample
from benchmarks.suite.machine import MachineLimits
from benchmarks.suite.plan import Row


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the plan, measured."""

    row: Row
    samples: Mapping[str, Sequence[Sample]]  #: By contestant, the first one is ours.
    share: float | None  #: Of the machine's limit, that ours uses.

    def median(self, name: str) -> float | None:
        """None for a contestant that did not measure this."""
        samples = self.samples.get(name)
        return statistics.median(sample.value for sample in samples) if samples else None

    def ratio(self, ours: str, rival: str) -> float | None:
        """How many times better ours is, whichever way is better."""
        return better_by(
            self.median(ours), self.median(rival), more_is_better=self.row.more_is_better
        )


def better_by(ours: float | None, theirs: float | None, *, more_is_better: bool) -> float | None:
    """How many times better ours is; None where that says nothing."""
    if ours is None or theirs is None or ours <= 0 or theirs <= 0:
        return None

    return ours / theirs if more_is_better else theirs / ours


def as_markdown(results: Sequence[Result], names: Sequence[str]) -> str:
    """The table: a column per contestant, ratios above 1 mean that the first one is better."""
    ours, rivals = names[0], names[1:]
    heads = ["", "unit", ours]
    for rival in rivals:
        heads += [rival, "ratio"]
    heads.append("share of limit")
    lines = [_line(heads), _line(["---"] * len(heads))]
    for result in results:
        cells = [result.row.title, result.row.unit, _number(result.median(ours))]
        for rival in rivals:
            cells.append(_number(result.median(rival)))
            cells.append(_number(result.ratio(ours, rival), ".2f"))
        cells.append(_number(result.share, ".0%"))
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def as_json(
    results: Sequence[Result],
    names: Sequence[str],
    limits: Sequence[MachineLimits],
    facts: Mapping[str, object],
) -> dict[str, Any]:
    """Everything, every sample with the load average before it."""
    rows = [
        {
            "name": result.row.name,
            "title": result.row.title,
            "unit": result.row.unit,
            "more_is_better": result.row.more_is_better,
            "median": {name: result.median(name) for name in result.samples},
            "ratio": {name: result.ratio(names[0], name) for name in names[1:]},
            "share_of_limit": result.share,
            "samples": {
                name: [asdict(sample) for sample in samples]
                for name, samples in result.samples.items()
            },
        }
        for result in results
    ]
    return {
        **facts,
        "contestants": list(names),
        "machine_limits": [asdict(sample) for sample in limits],
        "rows": rows,
    }


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None, form: str = "") -> str:
    if value is None:
        return "-"

    if form:
        return format(value, form)

    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
