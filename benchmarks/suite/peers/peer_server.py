"""Server side of `PeerProcess`: one line of JSON per request in, one line out.

It runs in the interpreter that has the peer installed, so it imports only the standard library.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.suite.peers.generate import Generate

_MODULES = {
    "onnxruntime": "benchmarks.suite.peers.onnxruntime_genai",
    "openvino": "benchmarks.suite.peers.openvino_genai",
    "vllm": "benchmarks.suite.peers.vllm_cpu",
}


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
    if peer not in _MODULES:
        raise SystemExit(f"unknown peer {peer!r}, expected one of {', '.join(_MODULES)}")

    module: Any = importlib.import_module(_MODULES[peer])  # Only that peer is installed.
    engine: Generate = module.open_engine(Path(model), int(threads))
    return engine


def _peak_bytes() -> int:
    status = Path("/proc/self/status")
    text = status.read_text(encoding="utf-8") if status.is_file() else ""
    match = re.search(r"^VmHWM:\s*(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


if __name__ == "__main__":
    main()
