"""Rate at which weights are packed, and the time to map the result.

python -m benchmarks.convert_weights [--megabytes 500] [--threads 2] [--format q4]
python -m benchmarks.convert_weights --model PATH [--threads 2]

The weights are bfloat16 matrices, or those of a model, whose first start has the other costs of
opening it as well; so the second start is to be subtracted.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import numpy as np

from aiomlc import EngineConfig
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.native.library import load_native
from aiomlc.weights import map_weights, prepare_weights
from aiomlc.weights.formats.directory import read_source
from benchmarks.native_model import open_native_model

COLS, ROWS = 2048, 5632


def write_model(directory: Path, megabytes: int) -> list[dict[str, Any]]:
    """Write matrices of random weights, and return the parameters that they form."""
    names = [f"layer.{i}.weight" for i in range(max(1, megabytes * 10**6 // (ROWS * COLS * 2)))]
    header: dict[str, Any] = {}
    for i, name in enumerate(names):
        start = i * ROWS * COLS * 2
        offsets = [start, start + ROWS * COLS * 2]
        header[name] = {"dtype": "BF16", "shape": [ROWS, COLS], "data_offsets": offsets}

    weights = np.random.default_rng(0).normal(0, 0.02, (ROWS, COLS)).astype(np.float32)
    bfloat16 = (weights.view(np.uint32) >> 16).astype(np.uint16)
    encoded = json.dumps(header).encode()
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for _ in names:
            file.write(bfloat16.data)

    return [{"name": name, "kind": "matrix", "shape": [ROWS, COLS], "sources": [name]}
            for name in names]  # fmt: skip


async def measure(directory: Path, options: argparse.Namespace) -> str:
    """Return a description of the first start, which converts, and of the second start."""
    records = write_model(directory, options.megabytes)
    params = [{**record, "layout": [[options.format, ROWS]]} for record in records]
    megabytes = len(params) * ROWS * COLS * 2 / 1e6
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        weights = await prepare_weights(
            read_source(ConfigFiles(directory)),
            params,
            quantization=options.format,
            num_threads=options.threads,
        )
        map_weights(weights.path, weights.nbytes, weights.params)
        seconds.append(time.perf_counter() - start)

    return (
        f"{options.format}: {megabytes:.0f} MB in {seconds[0]:.2f} s = "
        f"{megabytes / seconds[0]:.0f} MB/s on {options.threads} threads, "
        f"packed {weights.nbytes / 1e6:.0f} MB; second start {seconds[1] * 1e3:.1f} ms"
    )


def open_model(path: Path, threads: int) -> tuple[float, float]:
    """Open a model, and return the seconds that passed, and those of all processors."""
    config = EngineConfig(num_threads=threads)
    start, cpu_start = time.perf_counter(), time.process_time()
    open_native_model(path, config)
    return time.perf_counter() - start, time.process_time() - cpu_start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--format", choices=("q4", "i4progressive", "bf16", "f32"), default="q4")
    parser.add_argument("--model", type=Path, help="a directory or a GGUF file")
    options = parser.parse_args()
    load_native()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["AIOMLC_HOME"] = f"{directory}/home"
        if options.model is not None:
            for name in ("first", "second"):
                seconds, cpu_seconds = open_model(options.model, options.threads)
                print(f"{name} start: {seconds:.2f} s, {cpu_seconds:.2f} s of processors")
            return

        print(anyio.run(measure, Path(directory), options))


if __name__ == "__main__":
    main()
