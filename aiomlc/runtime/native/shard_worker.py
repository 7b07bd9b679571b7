"""The process of one shard: opens its part of a model, and computes until the engine ends."""

from __future__ import annotations

__all__ = ("main",)

import pickle
import signal
import sys
from typing import Any

from aiomlc.runtime.native.library import load_native, native_function
from aiomlc.runtime.native.model import NativeModel
from aiomlc.runtime.native.processors import on_processors
from aiomlc.runtime.native.shard_processes import ShardJob
from aiomlc.weights import map_weights
from aiomlc.workers.parent import end_with_parent, write_message


def main(parent: int) -> int:
    """Run the shard whose `ShardJob` is on standard input; `parent` is the engine's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the engine, which ends this.
    end_with_parent(parent, lambda: None)
    job: ShardJob = pickle.load(sys.stdin.buffer)
    with on_processors(job.processors):
        try:
            model = _open(job)
        except Exception as error:  # noqa: BLE001 - the parent raises it.
            write_message(error=type(error).__name__, message=str(error))
            return 1

        write_message(ready=True)
        native_function("aiomlc.model_run_shard")(
            model.handle, job.memory, job.rank, job.size, parent, job.spin_microseconds
        )
    return 0


def _open(job: ShardJob) -> Any:  # noqa: ANN401 - a native model.
    load_native()
    params = map_weights(job.weights, job.weight_bytes, job.params)
    return NativeModel(job.library, params, job.shape, job.num_threads)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
