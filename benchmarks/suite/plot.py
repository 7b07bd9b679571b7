"""Bar plot of the ratios."""

from __future__ import annotations

__all__ = ("check_plotting", "draw")

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from benchmarks.suite.measured_engine import UnavailableError
from benchmarks.suite.results import Result

_BAR = 0.8


def check_plotting() -> None:
    """Check that matplotlib is installed, before anything is measured.

    Raises:
        UnavailableError: If matplotlib is missing.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UnavailableError(
            "matplotlib is missing: pip install 'aiomlc[bench]', or pass --no-plot"
        )


def draw(results: Sequence[Result], names: Sequence[str], path: Path) -> None:
    """Draw a bar per ratio on a logarithmic scale; bars to the right of 1 favor aiomlc."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "aiomlc"  # Equal results give an identical file.
    pyplot = importlib.import_module("matplotlib.pyplot")
    engine, peers = names[0], names[1:]
    drawn = [result for result in results if any(result.ratio(engine, name) for name in peers)]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.36 * len(drawn) * max(1, len(peers))))
    height = _BAR / max(1, len(peers))
    for number, peer in enumerate(peers):
        ratios = [result.ratio(engine, peer) or 1.0 for result in drawn]
        places = [place + height * (number - (len(peers) - 1) / 2) for place in range(len(drawn))]
        axes.barh(places, [ratio - 1 for ratio in ratios], height, left=1, label=peer)
        for place, ratio, result in zip(places, ratios, drawn, strict=True):
            text = f" {ratio:.2f}" if result.ratio(engine, peer) else " not measured"
            axes.annotate(text, (max(1, ratio), place), va="center", fontsize=8)

    axes.set_yticks(range(len(drawn)), [result.row.title for result in drawn])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel(f"{engine} relative to each peer (higher is better)")
    if drawn:
        axes.legend(loc="best")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
