"""Each CPU kernel computes the same as the plain Relax layer that it replaces."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.model.layer_differences import CASES


@pytest.fixture(scope="module")
def differences() -> dict[str, float]:
    """Return the largest difference between plain and lowered outputs, by case."""
    command = [sys.executable, "-m", "tests.model.layer_differences"]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    values: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return values


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_computes_the_same_as_its_plain_layer(
    differences: dict[str, float], name: str
) -> None:
    assert differences[name] <= 2e-5
