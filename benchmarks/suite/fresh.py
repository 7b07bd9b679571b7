"""A fresh process that opens a model and answers once; `run_fresh` starts it.

It prints when the model was ready, by the clock that all processes share.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.suite.contestant import Setup


def main() -> None:
    contestant, model, threads, quantization = sys.argv[1:]
    setup = Setup(Path(model), int(threads), quantization)
    times: list[float] = []

    def ready() -> None:
        times.append(time.monotonic())

    # Only what this contestant needs is imported: the imports are part of what is measured.
    if contestant == "aiomlc":
        from benchmarks.suite.aiomlc_once import answer_once
    elif contestant == "openvino":
        from benchmarks.suite.openvino_genai import answer_once
    elif contestant == "vllm":
        from benchmarks.suite.vllm_cpu import answer_once
    else:
        raise SystemExit(f"there is no contestant {contestant!r}")

    answer_once(setup, ready)
    print(json.dumps({"ready": times[0]}))


if __name__ == "__main__":
    main()
