"""Delay of running streams by the prefill of a long prompt.

    python -m benchmarks.long_prompt --model MODEL

A step has a token budget, so during a chunked prefill no stream should wait for its next token
longer than one step of that budget takes. The benchmark measures the longest time between two
tokens of any stream, without and with the prompt, and the slowest step of the same prefill without
running streams.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from aiomlc import AsyncMLCEngine, EngineConfig
from benchmarks.interleaved import processor

_IDS = range(300, 1900)  # Plain text tokens in every vocabulary of the benchmarks.


@dataclass(slots=True)
class _Gaps:
    """The longest gap between consecutive tokens of a stream since the last call to `take`."""

    longest: float = 0.0

    def take(self) -> float:
        longest, self.longest = self.longest, 0.0
        return longest


async def _read_stream(
    engine: AsyncMLCEngine, prompt: Sequence[int], tokens: int, gaps: _Gaps, started: anyio.Event
) -> None:
    stream = await engine.completions.create(
        prompt=list(prompt),
        max_tokens=tokens,
        ignore_eos=True,
        temperature=0,
        logprobs=0,
        stream=True,
    )
    last = None
    async for _ in stream:
        now = time.perf_counter()
        if last is not None:
            gaps.longest = max(gaps.longest, now - last)
            started.set()
        last = now


async def _prefill(engine: AsyncMLCEngine, prompt: Sequence[int]) -> None:
    await engine.completions.create(prompt=list(prompt), max_tokens=1, temperature=0)


async def measure(arguments: argparse.Namespace, seed: int) -> tuple[float, float, float]:
    """Return the longest gap without and with the prompt, and the slowest step of its prefill."""
    rng = random.Random(seed)

    def prompt(length: int) -> list[int]:
        return rng.choices(_IDS, k=length)

    config = EngineConfig(num_threads=arguments.threads, prefix_cache_mode="disable")
    engine = AsyncMLCEngine(arguments.model, engine_config=config, enable_tracing=True)
    async with engine:
        await _prefill(engine, prompt(arguments.length))
        steps = [e["dur"] * 1e-6 for e in engine.trace()["traceEvents"] if e.get("name") == "step"]
        gaps = _Gaps()
        async with anyio.create_task_group() as tasks:
            for _ in range(arguments.streams):
                started = anyio.Event()
                tasks.start_soon(_read_stream, engine, prompt(32), arguments.tokens, gaps, started)
                await started.wait()
            gaps.take()
            await anyio.sleep(arguments.seconds)
            without = gaps.take()
            await _prefill(engine, prompt(arguments.length))
            during = gaps.take()
            tasks.cancel_scope.cancel()

    return without, during, max(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="default: the bundled model, for up to 1,500 tokens")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--length", type=int, default=4000, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=4000, help="maximum per stream")
    parser.add_argument("--seconds", type=float, default=5.0, help="time without the prompt")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rows = [anyio.run(measure, arguments, seed) for seed in range(arguments.rounds)]
    without, during, step = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"{processor()}\n\n| | ms (median of {arguments.rounds}) |\n|---|---|")
    print(f"| longest gap between tokens, {arguments.streams} streams | {1e3 * without:.0f} |")
    print(f"| the same while a prompt of {arguments.length} is read | {1e3 * during:.0f} |")
    print(f"| a step of the full budget | {1e3 * step:.0f} |")
    print(f"| increase, in steps | {(during - without) / step:.2f} |")


if __name__ == "__main__":
    main()
