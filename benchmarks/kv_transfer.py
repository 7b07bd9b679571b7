"""Time to move a computed prefix to another engine, per token, beside the time to compute it.

    python -m benchmarks.kv_transfer --model MODEL

Both engines run in this process; the pieces pass through a pipe of another process and back, as
they would on their way to an engine there.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from aiomlc import EngineConfig, MLCEngine
from benchmarks.interleaved import processor

_IDS = range(300, 1900)  # Plain text tokens in every vocabulary of the benchmarks.


def _timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _through_process(process: subprocess.Popen[bytes], piece: bytes) -> bytes:
    """Send a piece to a process that returns it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(len(piece).to_bytes(8, "little") + piece)
    process.stdin.flush()
    return process.stdout.read(len(piece))


_ECHO = """
import sys
while size := sys.stdin.buffer.read(8):
    sys.stdout.buffer.write(sys.stdin.buffer.read(int.from_bytes(size, "little")))
    sys.stdout.buffer.flush()
"""


def measure(
    engines: tuple[MLCEngine, MLCEngine], prompt: list[int]
) -> tuple[float, float, float, float, int]:
    """Return the seconds to compute, export, send and import a prompt, and its bytes."""
    source, target = engines
    pieces: list[bytes] = []
    for engine in engines:
        engine.reset()

    def prefill() -> None:
        source.completions.create(prompt=prompt, max_tokens=1, temperature=0)

    prefilled = _timed(prefill)
    with (
        source.export_prefix(prompt=prompt) as export,
        subprocess.Popen([sys.executable, "-c", _ECHO], stdin=-1, stdout=-1) as process,
    ):
        exported = _timed(lambda: pieces.extend(export))
        _through_process(process, pieces[0][:100])  # The process has started.
        sent = _timed(lambda: [_through_process(process, piece) for piece in pieces])

    imported = _timed(lambda: [target.import_prefix(piece) for piece in pieces])
    assert target.count_cached_tokens(prompt=prompt) == len(prompt)
    return prefilled, exported, sent, imported, sum(map(len, pieces))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="default: the bundled model, for up to 1,500 tokens")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--length", type=int, default=1000, help="tokens of the prompt")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    config = EngineConfig(
        num_threads=arguments.threads,
        kv_cache_dtype=arguments.kv_cache_dtype,
        max_num_sequence=8,
        max_total_sequence_length=4 * arguments.length,
    )
    rows = []
    with (
        MLCEngine(arguments.model, engine_config=config) as source,
        MLCEngine(arguments.model, engine_config=config) as target,
    ):
        for seed in range(arguments.rounds):
            prompt = random.Random(seed).choices(_IDS, k=arguments.length)
            rows.append(measure((source, target), prompt))

    medians = [statistics.median(column) / arguments.length for column in zip(*rows, strict=True)]
    print(
        f"{processor()}\n\n| | microseconds per token (median of {arguments.rounds}) |\n|---|---|"
    )
    for name, seconds in zip(("prefill", "export", "two pipes", "import"), medians, strict=False):
        print(f"| {name} | {1e6 * seconds:,.1f} |")
    print(f"\n{medians[-1]:,.0f} bytes per token")


if __name__ == "__main__":
    main()
