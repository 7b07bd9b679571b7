"""Lowering keeps the meaning: plain Relax layers and the kernels in their place agree."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.model.layer_differences import CASES


@pytest.fixture(scope="module")
def differences() -> dict[str, float]:
    """The largest difference between plain and lowered outputs, by case."""
    command = [sys.executable, "-m", "tests.model.layer_differences"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    values: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return values


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_computes_what_its_plain_layer_says(
    differences: dict[str, float], name: str
) -> None:
    assert differences[name] <= 2e-5
