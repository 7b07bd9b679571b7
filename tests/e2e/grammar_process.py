"""A process with limits that requests completions with random formats.

Arguments: the first seed, the number of seeds, and the bytes that it may need beyond what it needs
for its first completion. For each format, a line of JSON is written: its seed, what came of it, and
the processor time in seconds.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import anyio

from aiomlc import AsyncMLCEngine, GrammarError, RequestFailedError
from aiomlc.errors import AiomlcError
from tests.e2e.random_grammars import random_format


async def main(first_seed: int, count: int, num_bytes: int) -> None:
    """Try out the formats of the seeds."""
    async with AsyncMLCEngine() as engine:
        await complete(engine, 0, {"type": "json_object"})
        limit_memory(num_bytes)
        for seed in range(first_seed, first_seed + count):
            start = processor_time()
            outcome = await complete(engine, seed, random_format(seed))
            seconds = round(processor_time() - start, 3)
            line = json.dumps({"seed": seed, "outcome": outcome, "seconds": seconds})
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


async def complete(engine: AsyncMLCEngine, seed: int, response_format: dict[str, Any]) -> str:
    try:
        with anyio.fail_after(60):
            completion = await engine.completions.create(
                prompt="The",
                max_tokens=16,
                temperature=1.5,
                seed=seed,
                response_format=response_format,
            )
    except (GrammarError, RequestFailedError) as error:
        return type(error).__name__
    except AiomlcError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - reported to the test, which fails.
        return f"untyped {type(error).__name__}: {error}"[:500]

    return str(completion.choices[0].finish_reason)


def limit_memory(num_bytes: int) -> None:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    limit = int(status.partition("VmData:")[2].split()[0]) * 1024 + num_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def processor_time() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
