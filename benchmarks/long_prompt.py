"""How long does a long prompt make running streams wait?

    python -m benchmarks.long_prompt --model MODEL

A step is given a budget of tokens, so while a prompt is read no stream should wait for its next
token longer than one step of that size takes. The benchmark measures the worst time between two
tokens of any stream, without the prompt and with it, and what a step of the whole budget takes:
the slowest one while the prompt is read with no streams beside it.
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

_FIRST_TOKEN = 300  # The lowest ids are bytes and marks.


@dataclass(slots=True)
class _Gaps:
    """The longest time between two tokens of a stream since it was last taken."""

    worst: float = 0.0

    def take(self) -> float:
        worst, self.worst = self.worst, 0.0
        return worst


async def _read(
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
            gaps.worst = max(gaps.worst, now - last)
            started.set()
        last = now


async def _ask(engine: AsyncMLCEngine, prompt: Sequence[int]) -> None:
    await engine.completions.create(prompt=list(prompt), max_tokens=1, temperature=0)


async def measure(arguments: argparse.Namespace, seed: int) -> tuple[float, float, float]:
    """The worst gap without and with the prompt, and the slowest step of the prompt alone."""
    rng = random.Random(seed)

    def prompt(length: int) -> list[int]:
        return [rng.randrange(_FIRST_TOKEN, arguments.highest_token) for _ in range(length)]

    config = EngineConfig(num_threads=arguments.threads, prefix_cache_mode="disable")
    engine = AsyncMLCEngine(arguments.model, engine_config=config, enable_tracing=True)
    async with engine:
        await _ask(engine, prompt(arguments.length))
        steps = [e["dur"] * 1e-6 for e in engine.trace()["traceEvents"] if e.get("name") == "step"]
        gaps = _Gaps()
        async with anyio.create_task_group() as tasks:
            for _ in range(arguments.streams):
                started = anyio.Event()
                tasks.start_soon(_read, engine, prompt(32), arguments.tokens, gaps, started)
                await started.wait()
            gaps.take()
            await anyio.sleep(arguments.seconds)
            without = gaps.take()
            await _ask(engine, prompt(arguments.length))
            beside = gaps.take()
            tasks.cancel_scope.cancel()

    return without, beside, max(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="default: the bundled one, for prompts up to 1,500")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--length", type=int, default=4000, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=4000, help="of each stream, at most")
    parser.add_argument("--highest-token", type=int, default=30000)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long without the prompt")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rows = [anyio.run(measure, arguments, seed) for seed in range(arguments.rounds)]
    without, beside, step = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"{processor()}\n\n| | ms (median of {arguments.rounds}) |\n|---|---|")
    print(f"| worst time between two tokens of {arguments.streams} streams | {1e3 * without:.0f} |")
    print(f"| the same while a prompt of {arguments.length} is read | {1e3 * beside:.0f} |")
    print(f"| a step of the whole budget | {1e3 * step:.0f} |")
    print(f"| longer by, in steps | {(beside - without) / step:.2f} |")


if __name__ == "__main__":
    main()
