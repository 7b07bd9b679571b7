"""Error of a KV cache with fewer bits: logits compared with those of a float32 cache.

    python -m benchmarks.kv_cache_error --model MODEL

The model reads a prompt of random tokens in `--positions` chunks, and the logits after each chunk
are compared. Everything else is computed alike, so a difference is due to the cache alone, unless
`--reference` is another quantization. The relative error of a position is the L2 norm of the
difference of both logits, divided by the L2 norm of those with float32.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aiomlc import EngineConfig
from aiomlc.config import KVCacheType
from benchmarks.native_model import open_native_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CACHE_DTYPES: tuple[KVCacheType, ...] = ("float32", "float16", "bfloat16", "int8", "int4")


def logits_with(
    quantization: str | None, kv_cache_dtype: KVCacheType, arguments: argparse.Namespace
) -> NDArray[np.float32]:
    """Return the logits after each of equal chunks of one prompt, `[positions, vocabulary]`."""
    config = EngineConfig(
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
        num_threads=arguments.threads,
        max_num_sequence=1,
        max_total_sequence_length=arguments.tokens,
    )
    opened = open_native_model(arguments.model, config)
    prompt = random.Random(0).choices(range(opened.vocab_size), k=arguments.tokens)
    size = arguments.tokens // arguments.positions
    model = opened.native
    model.add_sequence(0)
    chunks = (prompt[start : start + size] for start in range(0, size * arguments.positions, size))
    return np.concatenate([model.forward([(0, chunk)]) for chunk in chunks])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, help="model directory (default: the bundled model)")
    parser.add_argument("--quantization")
    parser.add_argument("--reference", help="the quantization of the reference, if another")
    parser.add_argument("--caches", nargs="+", choices=_CACHE_DTYPES, default=_CACHE_DTYPES)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--positions", type=int, default=128)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()

    quantization = arguments.quantization
    reference = logits_with(arguments.reference or quantization, "float32", arguments)
    reference = reference.astype(np.float64)
    norms = np.linalg.norm(reference, axis=1)
    print(f"{arguments.tokens} tokens, {len(reference)} positions\n")
    print("| cache | median relative error | max | same argmax |\n|---|---|---|---|")
    for cache in arguments.caches:
        logits = logits_with(quantization, cache, arguments)
        errors = np.linalg.norm(logits - reference, axis=1) / norms
        agreement = np.mean(logits.argmax(1) == reference.argmax(1))
        print(f"| {cache} | {np.median(errors):.3%} | {errors.max():.3%} | {agreement:.1%} |")


if __name__ == "__main__":
    main()
