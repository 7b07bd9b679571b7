"""Run a program of googletest in as many processes as there are processors.

`python native/tests/run_shards.py [--jobs N] [--share K/N] PROGRAM`: with `--share`, only each N-th
test, from the K-th on. The output of a process appears when it ends.
"""

from __future__ import annotations

__all__ = ()

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def main() -> int:
    """Return the exit status: 0 if all tests passed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--share", default="0/1")
    parser.add_argument("program")
    arguments = parser.parse_args()
    index, _, count = arguments.share.partition("/")

    def run(job: int) -> subprocess.CompletedProcess[str]:
        shards = {
            "GTEST_TOTAL_SHARDS": str(int(count) * arguments.jobs),
            "GTEST_SHARD_INDEX": str(int(index) + int(count) * job),
        }
        return subprocess.run(
            [arguments.program, "--gtest_brief=1"],
            env=os.environ | shards,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    began = time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        runs = list(pool.map(run, range(arguments.jobs)))
    for run_ in runs:
        sys.stdout.write(run_.stdout)
    seconds = time.monotonic() - began
    print(f"{arguments.program}, share {arguments.share}: {seconds:.0f} s", flush=True)
    return int(any(run_.returncode != 0 for run_ in runs))


if __name__ == "__main__":
    sys.exit(main())
