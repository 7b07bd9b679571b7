"""Many clients that behave badly, against an engine with room for few.

    python -m benchmarks.soak --seconds 60

Now and then a row of logits is NaN, some grammars cannot continue, a model that guesses fails, and
the engine is drained, reset, unloaded and reloaded. Every request must end in a defined way: with
an answer, by its client's own leaving, or with an error of ours. Afterwards no request may be left,
every page must be free and the memory must be what it was. Ends with the exit status 1 if it is not
so, and prints the outcomes.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, get_args

import anyio
from anyio import create_task_group, fail_after, move_on_after, sleep

from aiomlc import AsyncMLCEngine, CoreStatistics, EngineConfig
from aiomlc.testing import Faults, faulty_loader
from benchmarks.soak_clients import Outcomes, run_client

_Mode = Literal["disable", "prompt_lookup", "small_draft"]
_MANY = 100_000  # More often the engine is not reloaded.


@dataclass(frozen=True)
class Settings:
    """What the command line asked for."""

    seconds: float
    clients: int
    seed: int
    backend: str
    mode: _Mode
    nan_every: int | None
    draft_fails_at: int | None
    allowed_growth_mb: float


def engine_config(mode: _Mode) -> EngineConfig:
    """Pages for eight long answers, rows for twelve, a queue for forty."""
    return EngineConfig(
        max_num_sequence=12,
        max_total_sequence_length=8 * 320,
        max_single_sequence_length=1024,
        max_queue_size=40,
        max_unread_tokens=32,
        speculative_mode=mode,
        # A fixed length: adaptive drafts are for fewer rows.
        spec_draft_length=0 if mode == "disable" else 2,
    )


async def soak(settings: Settings) -> list[str]:
    """Run the clients; returns what was not as it has to be."""
    seconds, clients, seed = settings.seconds, settings.clients, settings.seed
    outcomes = Outcomes()
    draft = Faults(nan_every=settings.nan_every, fail_at_step=settings.draft_fails_at)
    loader = faulty_loader(*[Faults(nan_every=settings.nan_every, draft=draft)] * _MANY)
    async with AsyncMLCEngine(engine_config=engine_config(settings.mode), loader=loader) as engine:
        # What is made once and kept, such as compiled grammars, is there before it is measured.
        await _run(engine, clients, seed, min(5.0, seconds), Outcomes())
        before = _resident_mb()
        await _run(engine, clients, seed + clients, seconds, outcomes)
        left = await _wait_until_idle(engine)
        after = _resident_mb()

    for outcome, count in sorted((outcomes.counts + outcomes.doings).items()):
        print(f"{count:8d}  {outcome}")

    total = sum(outcomes.counts.values())
    print(f"{total:8d}  requests, {outcomes.tokens} tokens told, {seconds:.0f} s")
    print(f"resident memory {before:.0f} MB before, {after:.0f} MB after")
    violations = []
    if (left.num_running, left.num_waiting, left.num_paused) != (0, 0, 0):
        violations.append(f"sequences are left: {left}")

    if left.num_pinned:
        violations.append(f"{left.num_pinned} prefixes are pinned")

    if left.free_pages != left.total_pages:
        violations.append(f"{left.free_pages} of {left.total_pages} pages are free")

    if after > before + settings.allowed_growth_mb:
        violations.append("the memory grew")

    return violations


async def _operate(engine: AsyncMLCEngine, seed: int, until: float, doings: Counter[str]) -> None:
    """Now and then do to the engine what its owner may do at any moment."""
    random = Random(seed)
    await sleep(0.5)
    doing = "reload"  # First, so that there was one before memory is measured.
    while anyio.current_time() < until:
        doings[doing] += 1
        if doing == "drain":
            await engine.drain(random.choice((0.0, 0.1, 0.5)))
            engine.resume()
        elif doing == "reset":
            engine.reset()
        else:
            if doing == "unload":
                await engine.unload()
                await sleep(random.random() * 0.1)

            await engine.reload()

        await sleep(random.uniform(0.5, 6.0))
        doing = random.choice(("drain", "reset", "reload", "unload"))


async def _run(
    engine: AsyncMLCEngine, clients: int, seed: int, seconds: float, outcomes: Outcomes
) -> None:
    # Who hangs is cancelled, which is an error: an answer takes a second at most.
    with fail_after(seconds + 30):
        until = anyio.current_time() + seconds
        async with create_task_group() as tasks:
            tasks.start_soon(_operate, engine, seed, until, outcomes.doings)
            for number in range(clients):
                tasks.start_soon(run_client, engine, seed + number, until, outcomes)


async def _wait_until_idle(engine: AsyncMLCEngine) -> CoreStatistics:
    with move_on_after(10):
        while True:
            statistics = engine.statistics()
            if statistics.num_running + statistics.num_waiting + statistics.num_paused == 0:
                break

            await sleep(0.01)

    return engine.statistics()


def _resident_mb() -> float:
    """What is in use: freed memory that allocators keep for so many threads is given back."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--mode", choices=get_args(_Mode), default="disable")
    parser.add_argument("--nan-every", type=int, default=500, help="steps; the row of one is NaN")
    parser.add_argument(
        "--draft-fails-at", type=int, default=1000, help="step of the model that guesses"
    )
    parser.add_argument(
        "--allowed-growth-mb",
        type=float,
        default=64,
        help="of resident memory, for what allocators and caches keep",
    )
    settings = Settings(**vars(parser.parse_args()))
    print(f"seed {settings.seed}")
    violations = anyio.run(soak, settings, backend=settings.backend)
    for violation in violations:
        print(violation, file=sys.stderr)

    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
