"""Ctrl-C at random moments reaches the caller and nobody else, and leaves nothing.

`AIOMLC_INTERRUPTS=400 python -m pytest tests/e2e/test_interrupts.py` takes minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.e2e.programs import ROOT

NUM_INTERRUPTS = int(os.environ.get("AIOMLC_INTERRUPTS", "30"))


@pytest.mark.timeout(120 + 4 * NUM_INTERRUPTS)
@pytest.mark.parametrize("form", ["asyncio", "trio", "blocking"])
@pytest.mark.sampled(1)
def test_interrupts_reach_only_the_caller_and_leave_nothing(form: str) -> None:
    arguments = ["-m", "tests.e2e.interrupts", form, str(NUM_INTERRUPTS), "20261122"]
    result = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
