"""Time until every reader sees that the engine is dead, and until a new engine answers.

    python -m benchmarks.engine_failure

A model fails at one of its steps while readers wait for their next token. The benchmark measures
the time from the last chunk of any reader, which precedes the failing pass, until the last reader
has its `EngineDeadError`, and from then until the first completion of a new engine.
"""

from __future__ import annotations

import argparse
import statistics
import time

import anyio

from aiomlc import AsyncMLCEngine, EngineDeadError
from aiomlc.testing import Faults, faulty_loader
from benchmarks.interleaved import processor

_MESSAGES = [{"role": "user", "content": "Tell me a story about a fox called Rosa."}]


async def measure(num_readers: int, pass_number: int) -> tuple[float, float]:
    """Return the seconds to the last reader's error, and from then to a new engine's answer."""
    last_chunk = last_error = 0.0

    async def read(engine: AsyncMLCEngine) -> None:
        nonlocal last_chunk, last_error
        stream = await engine.chat.completions.create(
            messages=_MESSAGES, stream=True, max_tokens=1000, ignore_eos=True
        )
        try:
            async for _ in stream:
                last_chunk = time.perf_counter()
        except EngineDeadError:
            last_error = time.perf_counter()

    try:
        async with (
            AsyncMLCEngine(loader=faulty_loader(Faults(fail_at_pass=pass_number))) as engine,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(num_readers):
                tasks.start_soon(read, engine)
    except EngineDeadError:
        pass  # Closing the engine raises the same error.

    async with AsyncMLCEngine() as engine:
        await engine.chat.completions.create(messages=_MESSAGES, max_tokens=1)

    return last_error - last_chunk, time.perf_counter() - last_error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--readers", type=int, default=64)
    parser.add_argument(
        "--pass", dest="pass_number", type=int, default=200, help="forward pass that fails"
    )
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    print(f"{processor()}, {arguments.readers} readers\n\n| | last error, ms | new engine, ms |")
    print("|---|---|---|")
    for backend in ("asyncio", "trio"):
        rows = [
            anyio.run(measure, arguments.readers, arguments.pass_number, backend=backend)
            for _ in range(arguments.rounds)
        ]
        error, restart = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| {backend} | {1e3 * error:.1f} | {1e3 * restart:.0f} |")


if __name__ == "__main__":
    main()
