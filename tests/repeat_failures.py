"""Run the tests that failed again, one at a time, and list those that pass only so.

`python tests/repeat_failures.py [--strict]`, after a run of pytest that failed. A test that fails
beside others, for want of time on a loaded machine, has to pass alone. With `--strict` that is
a failure, too.
"""

from __future__ import annotations

__all__ = ()

import json
import subprocess
import sys
from pathlib import Path

_LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def _failed() -> set[str]:
    return set(json.loads(_LAST_FAILED.read_bytes())) if _LAST_FAILED.exists() else set()


def main(arguments: list[str]) -> int:
    """Return the exit status: 0 if every test passed again, and none had to without `--strict`."""
    failed = _failed()
    print(f"Again, one at a time: {len(failed)} tests", flush=True)  # noqa: T201
    command = [sys.executable, "-m", "pytest", "-n", "0", "--last-failed"]
    status = subprocess.run([*command, "--last-failed-no-failures", "none"], check=False).returncode
    passed_alone = sorted(failed - _failed())
    if passed_alone:
        print("Passed only alone:", *passed_alone, sep="\n  ", flush=True)  # noqa: T201
    return 1 if "--strict" in arguments and passed_alone else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
