"""A program with a model in two processes that ends without closing its engine."""

from __future__ import annotations

import os
import signal
import sys

from aiomlc import EngineConfig, MLCEngine
from tests.model.shards.processes import children

if __name__ == "__main__":
    config = EngineConfig(quantization="q4f16_1", tensor_parallel_shards=2, num_threads=2)
    engine = MLCEngine(sys.argv[1], engine_config=config)
    engine.chat.completions.create(messages=[{"role": "user", "content": "Hi."}], max_tokens=2)
    (worker,) = children()
    sys.stdout.write(f"{worker}\n")
    sys.stdout.flush()
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
