"""Decode rate while the event loop is busy for 3 ms at a time, compared with an idle loop.

    python -m benchmarks.event_loop_busy

The rate comes from the core's decode counters; `--clock wall` divides by the elapsed time, delivery
included. By default the kernels have one thread fewer than there are processors, because the busy
loop occupies one: the subject is the GIL, not CPU contention.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial

import anyio
import anyio.lowlevel

from aiomlc import AsyncMLCEngine, EngineConfig
from benchmarks.interleaved import report, run_interleaved

_BUSY_SECONDS = 0.003


async def read_story(engine: AsyncMLCEngine, seed: int, tokens: int) -> None:
    stream = await engine.chat.completions.create(
        messages=[{"role": "user", "content": "Tell me a story about a fox called Rosa."}],
        max_tokens=tokens,
        seed=seed,
        stream=True,
    )
    async with stream:
        async for _ in stream:
            pass


async def stay_busy() -> None:
    """Hold the event loop, and the GIL, for 3 ms at a time, until cancelled."""
    while True:
        deadline = time.perf_counter() + _BUSY_SECONDS
        while time.perf_counter() < deadline:
            pass
        await anyio.lowlevel.checkpoint()


async def measure(arguments: argparse.Namespace, *, busy: bool) -> float:
    """Return the decoded tokens per second."""
    config = EngineConfig(num_threads=arguments.threads)
    async with AsyncMLCEngine(engine_config=config) as engine:
        await read_story(engine, 0, 16)
        before, start = engine.statistics(), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            if busy:
                tasks.start_soon(stay_busy)
            async with anyio.create_task_group() as readers:
                for seed in range(arguments.streams):
                    readers.start_soon(read_story, engine, seed, arguments.tokens)
            tasks.cancel_scope.cancel()

        after, wall_seconds = engine.statistics(), time.perf_counter() - start

    core_seconds = after.decode_seconds - before.decode_seconds
    tokens = after.decode_tokens - before.decode_tokens
    return tokens / (wall_seconds if arguments.clock == "wall" else core_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=("core", "wall"), default="core")
    arguments = parser.parse_args()

    def run(*, busy: bool) -> float:
        return anyio.run(partial(measure, arguments, busy=busy))

    samples = run_interleaved(
        {
            "busy 3 ms at a time": partial(run, busy=True),
            "idle": partial(run, busy=False),
        },
        arguments.rounds,
    )
    report(
        f"Decode rate of the core, {arguments.streams} streams, {arguments.threads} threads",
        "tokens/s",
        samples,
        streams=arguments.streams,
        threads=arguments.threads,
        clock=arguments.clock,
    )


if __name__ == "__main__":
    main()
