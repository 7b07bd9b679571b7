"""Server side of `PeerProcess`: one line of JSON per request in, one line out.

It runs in the interpreter that has the peer installed, so it imports only the standard library.
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
    # Libraries print to stdout, so move it to stderr and keep the pipe for the protocol.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    generate = _open(*sys.argv[1:])
    print(json.dumps({"ready": time.monotonic()}), file=pipe, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter()
        generate(request["prompts"], request["tokens"])
        seconds = time.perf_counter() - start
        result = {"seconds": seconds, "peak_bytes": _peak_bytes()}
        print(json.dumps(result), file=pipe, flush=True)


def _open(peer: str, model: str, threads: str) -> Generate:
    if peer == "openvino":
        from benchmarks.suite.openvino_genai import open_engine
    elif peer == "vllm":
        from benchmarks.suite.vllm_cpu import open_engine
    else:
        raise SystemExit(f"unknown peer {peer!r}, expected 'openvino' or 'vllm'")

    return open_engine(Path(model), int(threads))


def _peak_bytes() -> int:
    status = Path("/proc/self/status")
    text = status.read_text(encoding="utf-8") if status.is_file() else ""
    match = re.search(r"^VmHWM:\s*(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


if __name__ == "__main__":
    main()
