"""Run programs as a user would: in a subprocess, here with warnings as errors."""

from __future__ import annotations

__all__ = ("run_program", "wrong_sums")

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_program(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the root directory of the repository."""
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def wrong_sums(text: str) -> list[str]:
    """Return the sums in a text, such as `12 + 30 = 42.`, that are wrong."""
    sums = re.findall(r"(\d+) \+ (\d+) = (\d+)", text)
    return [f"{a} + {b} = {c}" for a, b, c in sums if int(a) + int(b) != int(c)]
