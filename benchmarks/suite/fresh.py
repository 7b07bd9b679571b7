"""A fresh process that opens a model and answers once; `run_fresh` starts it.

It prints when the model was ready, by the clock that all processes share.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

# Only what a user's program would import: the imports are part of what is measured.
from benchmarks.suite.aiomlc_once import answer_once
from benchmarks.suite.contestant import Setup


def main() -> None:
    model, threads, quantization = sys.argv[1:]
    times: list[float] = []

    def ready() -> None:
        times.append(time.monotonic())

    answer_once(Setup(Path(model), int(threads), quantization), ready)
    print(json.dumps({"ready": times[0]}))


if __name__ == "__main__":
    main()
