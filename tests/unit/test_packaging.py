"""What `make wheels` runs."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("architectures", "is_used"),
    [("other", False), (platform.machine(), True), (f"other {platform.machine()}", True)],
)
def test_a_wheel_is_used_where_it_was_built_for(architectures: str, is_used: bool) -> None:
    commands = subprocess.run(
        ["make", "--dry-run", "wheels", f"ARCHITECTURES={architectures}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert f"packaging/build_wheels.sh {architectures}\n" in commands
    assert ("packaging/smoke_test.sh" in commands) == is_used
