"""Speed of decoding after long contexts, beside what the bytes of keys and values take to read.

    python -m benchmarks.long_decode --model MODEL

The rows of one prompt are imported again and again until a sequence has its length, so no long
prompt is computed. In each round, every sequence decodes a few tokens, and as many threads read
plain memory: the bandwidth of shared machines changes. What a context adds to the time of a token
is compared with the time to read its keys and values.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from aiomlc import EngineConfig
from aiomlc.config import KVCacheType
from aiomlc.runtime.loading.open_decoder import OpenedModel
from aiomlc.runtime.native.model import NativeModel
from benchmarks.interleaved import processor
from benchmarks.native_model import open_native_model

_PROMPT: Final = 512
_STEPS: Final = 3  # Of each sequence in a round.
_READ_BYTES: Final = 1 << 28  # By each thread.


def _open(arguments: argparse.Namespace, dtype: KVCacheType) -> OpenedModel:
    steps = arguments.rounds * _STEPS
    tokens = sum(-(-(length + _PROMPT + steps) // 16) * 16 for length in arguments.contexts)
    config = EngineConfig(
        quantization=arguments.quantization,
        kv_cache_dtype=dtype,
        num_threads=arguments.threads,
        max_num_sequence=len(arguments.contexts) + 1,
        max_total_sequence_length=tokens + 2 * _PROMPT,
    )
    return open_native_model(arguments.model, config)


def _fill(model: NativeModel, vocab_size: int, contexts: Sequence[int]) -> None:
    """Add a sequence of each length."""
    source = len(contexts)
    model.add_sequence(source)
    model.forward([(source, random.Random(0).choices(range(vocab_size), k=_PROMPT))])
    rows = model.export_tokens(source, 0, _PROMPT)
    model.remove_sequence(source)
    for sequence, length in enumerate(contexts):
        model.add_sequence(sequence)
        for _ in range(length // _PROMPT):
            model.import_tokens(sequence, rows)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _read(pool: ThreadPoolExecutor, buffers: Sequence[np.ndarray]) -> float:
    """Return the bytes per second that the threads read together."""

    def read_all() -> None:
        for future in [pool.submit(np.bitwise_or.reduce, buffer) for buffer in buffers]:
            future.result()

    return sum(buffer.nbytes for buffer in buffers) / _seconds(read_all)


def measure(arguments: argparse.Namespace, dtype: KVCacheType) -> None:
    """Print a line for each context."""
    opened = _open(arguments, dtype)
    model = opened.native
    _fill(model, opened.vocab_size, arguments.contexts)
    token_bytes = opened.plan.kv_bytes_per_token
    threads = arguments.threads
    buffers = [np.full(_READ_BYTES // 8, 17, np.uint64) for _ in range(threads)]
    times: list[list[float]] = [[] for _ in arguments.contexts]
    rates = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(arguments.rounds):
            for sequence, seconds in enumerate(times):
                step = partial(model.forward, [(sequence, [7])])
                seconds += [_seconds(step) for _ in range(_STEPS)]
            rates.append(_read(pool, buffers))

    # The fastest: other processes may take a processor at any time.
    base, rate = min(times[0]), max(rates)
    for length, seconds in zip(arguments.contexts, times, strict=True):
        each = min(seconds)
        added = each - base
        expected = length * token_bytes / rate
        speed = f"{length * token_bytes / added / 1e9:.1f}" if length else ""
        lost = f"{each / (base + expected) - 1:.0%}" if length else ""
        print(
            f"| {dtype} | {token_bytes:,} | {length:,} | {1e3 * each:.1f} | {1 / each:.1f} "
            f"| {speed} | {rate / 1e9:.1f} | {lost} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, required=True, help="model directory")
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "float16", "bfloat16", "int8", "int4"]
    )
    parser.add_argument(
        "--contexts", nargs="+", type=int, default=[0, 4096, 16384, 32768], help="the first is 0"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    print(processor(), "\n")
    print(
        "| cache | bytes per token | context | ms | tokens/s | GB/s of keys and values "
        "| memory GB/s | lost beyond bytes |\n|---|---|---|---|---|---|---|---|"
    )
    for dtype in arguments.dtypes:
        measure(arguments, dtype)


if __name__ == "__main__":
    main()
