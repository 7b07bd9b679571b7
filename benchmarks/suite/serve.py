"""The rival's side of `RivalProcess`: one line of JSON per call in, one out.

It runs in the interpreter that has the rival, so it imports nothing else that has to be installed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

from benchmarks.suite.generate import Generate


def main() -> None:
    # Libraries print what they like; the pipe is ours alone.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    generate = _open(*sys.argv[1:])
    print(json.dumps({"ready": time.monotonic()}), file=pipe, flush=True)
    for line in sys.stdin:
        call = json.loads(line)
        began = time.perf_counter()
        generate(call["prompts"], call["tokens"])
        seconds = time.perf_counter() - began
        answer = {"seconds": seconds, "peak_bytes": _peak_bytes()}
        print(json.dumps(answer), file=pipe, flush=True)


def _open(rival: str, model: str, threads: str) -> Generate:
    if rival == "openvino":
        from benchmarks.suite.openvino_genai import open_engine
    elif rival == "vllm":
        from benchmarks.suite.vllm_cpu import open_engine
    else:
        raise SystemExit(f"there is no rival {rival!r}")

    return open_engine(Path(model), int(threads))


def _peak_bytes() -> int:
    status = Path("/proc/self/status")
    text = status.read_text(encoding="utf-8") if status.is_file() else ""
    found = re.search(r"^VmHWM:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


if __name__ == "__main__":
    main()
