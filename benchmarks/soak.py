"""Soak test: many badly behaved clients of an engine with capacity for few.

    python -m benchmarks.soak --seconds 60

From time to time a row of logits is NaN, a grammar cannot continue, the draft model fails, and the
engine is drained, reset, unloaded and reloaded. Every request must end in a defined way: with a
completion, because its client left, or with an `AiomlcError`. Afterwards no request may be left,
every page must be free and memory must not have grown. Prints the outcomes; the exit status is 1 if
a condition is violated.
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
from aiomlc.devices import device_index, device_name
from aiomlc.runtime.native.opencl import opencl_device
from aiomlc.testing import Faults, faulty_loader
from benchmarks.soak_clients import Outcomes, run_client

_Mode = Literal["disable", "prompt_lookup", "small_draft"]
_LAST_PASS_BYTES = 1 << 18  # The virtual machine keeps the results of its last call.
_MAX_LOADS = 100_000  # An upper bound of how often the engine is loaded.


@dataclass(frozen=True)
class Settings:
    """The command line options."""

    seconds: float
    clients: int
    seed: int
    backend: str
    mode: _Mode
    nan_every: int | None
    draft_fails_at: int | None
    allowed_growth_mb: float
    hang_after: float
    device: str = "cpu"
    model: Path | None = None  #: None is the bundled one.


def engine_config(mode: _Mode, model: Path | None = None) -> EngineConfig:
    """Return a config with pages for 8 long completions, 12 rows and a queue of 40."""
    return EngineConfig(
        quantization=None if model is None else "q0f32",
        max_num_sequence=12,
        max_total_sequence_length=8 * 320,
        max_single_sequence_length=1024 if model is None else 512,
        max_queue_size=40,
        max_unread_tokens=32,
        speculative_mode=mode,
        # Fixed, because adaptive drafting is meant for fewer rows.
        spec_draft_length=0 if mode == "disable" else 2,
    )


async def soak(settings: Settings) -> list[str]:
    """Run the clients and return the violated conditions."""
    seconds, seed = settings.seconds, settings.seed
    outcomes = Outcomes()
    draft = Faults(nan_every=settings.nan_every, fail_at_pass=settings.draft_fails_at)
    loader = faulty_loader(*[Faults(nan_every=settings.nan_every, draft=draft)] * _MAX_LOADS)
    config = engine_config(settings.mode, settings.model)
    async with AsyncMLCEngine(
        settings.model, device=settings.device, engine_config=config, loader=loader
    ) as engine:
        # Warm up, so that caches such as those of compiled grammars are filled before measuring.
        await _run(engine, settings, seed, min(5.0, seconds), Outcomes())
        before, device_before = _resident_mb(), _device_bytes(settings.device)
        await _run(engine, settings, seed + settings.clients, seconds, outcomes)
        final = await _wait_until_idle(engine)
        after, device_after = _resident_mb(), _device_bytes(settings.device)

    for outcome, count in sorted((outcomes.counts + outcomes.operations).items()):
        print(f"{count:8d}  {outcome}")

    total = sum(outcomes.counts.values())
    print(f"{total:8d}  requests, {outcomes.tokens} tokens read, {seconds:.0f} s")
    print(f"resident memory {before:.0f} MB before, {after:.0f} MB after")
    if device_after:
        print(f"device memory {device_before:,} bytes before, {device_after:,} after")
    violations = []
    if (final.num_running, final.num_waiting, final.num_paused) != (0, 0, 0):
        violations.append(f"sequences are left: {final}")

    if final.num_pinned:
        violations.append(f"{final.num_pinned} prefixes are still pinned")

    if final.free_pages != final.total_pages:
        violations.append(f"only {final.free_pages} of {final.total_pages} pages are free")

    if after > before + settings.allowed_growth_mb:
        violations.append(f"memory grew by {after - before:.0f} MB")

    if device_after > device_before + _LAST_PASS_BYTES:
        violations.append(f"device memory grew by {device_after - device_before:,} bytes")

    return violations


async def _operate(
    engine: AsyncMLCEngine, seed: int, deadline: float, operations: Counter[str]
) -> None:
    """Drain, reset, unload or reload the engine from time to time, until `deadline`."""
    random = Random(seed)
    await sleep(0.5)
    operation = "reload"  # First, so that the warm-up includes one.
    while anyio.current_time() < deadline:
        operations[operation] += 1
        if operation == "drain":
            await engine.drain(random.choice((0.0, 0.1, 0.5)))
            engine.resume()
        elif operation == "reset":
            engine.reset()
        else:
            if operation == "unload":
                await engine.unload()
                await sleep(random.random() * 0.1)

            await engine.reload()

        await sleep(random.uniform(0.5, 6.0))
        operation = random.choice(("drain", "reset", "reload", "unload"))


async def _run(
    engine: AsyncMLCEngine, settings: Settings, seed: int, seconds: float, outcomes: Outcomes
) -> None:
    with fail_after(seconds + settings.hang_after):
        deadline = anyio.current_time() + seconds
        async with create_task_group() as tasks:
            tasks.start_soon(_operate, engine, seed, deadline, outcomes.operations)
            for number in range(settings.clients):
                tasks.start_soon(run_client, engine, seed + number, deadline, outcomes)


async def _wait_until_idle(engine: AsyncMLCEngine) -> CoreStatistics:
    """Wait until the core has done what the last clients asked for, also to unpin a prefix."""
    with move_on_after(10):
        while True:
            now = engine.statistics()
            if now.num_running + now.num_waiting + now.num_paused + now.num_pinned == 0:
                break

            await sleep(0.01)

    return engine.statistics()


def _resident_mb() -> float:
    """Return the resident memory, after the allocators have returned freed memory."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _device_bytes(device: str) -> int:
    """Return the memory that this process has allocated on a device of OpenCL; 0 on others."""
    if device_name(device) != "opencl":
        return 0

    return opencl_device(device_index(device)).allocated_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--mode", choices=get_args(_Mode), default="disable")
    parser.add_argument("--nan-every", type=int, default=500, help="steps between rows of NaN")
    parser.add_argument("--draft-fails-at", type=int, default=1000, help="step of the draft model")
    parser.add_argument(
        "--allowed-growth-mb",
        type=float,
        default=64,
        help="of resident memory, for allocators and caches",
    )
    parser.add_argument(
        "--hang-after",
        type=float,
        default=30,
        help="seconds that the last requests may take; about one without sanitizers",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", type=Path, help="a directory; the default is the bundled model")
    settings = Settings(**vars(parser.parse_args()))
    print(f"seed {settings.seed}")
    violations = anyio.run(soak, settings, backend=settings.backend)
    for violation in violations:
        print(violation, file=sys.stderr)

    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
