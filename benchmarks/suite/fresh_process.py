"""Entry point of a fresh process that opens a model and answers once.

`benchmarks.suite.process.run_fresh` starts it. It prints the time at which the model was ready, by
the monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

# Import only what a user's program would: import time is part of the measurement.
from benchmarks.suite.aiomlc_once import answer_once
from benchmarks.suite.measured_engine import Setup


def main() -> None:
    model, threads, quantization = sys.argv[1:]
    times: list[float] = []

    def on_ready() -> None:
        times.append(time.monotonic())

    path = Path(model)
    opened = None if quantization else path
    answer_once(Setup(path, int(threads), quantization, opened=opened), on_ready)
    print(json.dumps({"ready": times[0]}))


if __name__ == "__main__":
    main()
