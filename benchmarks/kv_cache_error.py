"""What a KV cache of fewer bits costs: logits beside those of a cache in float32.

    python -m benchmarks.kv_cache_error --model MODEL

The model reads a prompt of random tokens, which ends as many times as `--positions` says. All else
is computed alike, so what differs is due to what the cache keeps. The relative error of a position
is the length of the difference of both logits over the length of those with float32.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import numpy as np

from aiomlc import EngineConfig
from aiomlc.config import KVCacheType
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import open_native

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CACHES: tuple[KVCacheType, ...] = ("float16", "int8")


def logits_with(kv_cache_dtype: KVCacheType, arguments: argparse.Namespace) -> NDArray[np.float32]:
    """Logits at the ends of equal pieces of one prompt, `[positions, vocabulary]`."""
    config = EngineConfig(
        quantization=arguments.quantization,
        kv_cache_dtype=kv_cache_dtype,
        num_threads=arguments.threads,
        max_num_sequence=1,
        max_total_sequence_length=arguments.tokens,
    )
    directory = find_model(arguments.model)
    opened = anyio.run(open_native, directory, "auto", "local", config, lambda _: None)
    prompt = random.Random(0).choices(range(opened.vocab_size), k=arguments.tokens)
    size = arguments.tokens // arguments.positions
    model = opened.native
    model.add_sequence(0)
    pieces = (prompt[begin : begin + size] for begin in range(0, size * arguments.positions, size))
    return np.concatenate([model.forward([(0, piece)]) for piece in pieces])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, help="a directory; the bundled model if absent")
    parser.add_argument("--quantization")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--positions", type=int, default=128)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()

    exact = logits_with("float32", arguments).astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1)
    print(f"{arguments.tokens} tokens, {len(exact)} positions\n")
    print("| cache | median relative error | worst | same greatest logit |\n|---|---|---|---|")
    for cache in _CACHES:
        logits = logits_with(cache, arguments)
        errors = np.linalg.norm(logits - exact, axis=1) / lengths
        agreement = np.mean(logits.argmax(1) == exact.argmax(1))
        print(f"| {cache} | {np.median(errors):.3%} | {errors.max():.3%} | {agreement:.1%} |")


if __name__ == "__main__":
    main()
