"""Time to the first chunk, and from leaving a stream to its abort: engine and client in process.

    python -m benchmarks.first_chunk [--rounds 200] [--backend trio]

Each round asks the bundled model once directly (`engine.chat.completions`) and once through
OpenAI's client in the same process (`engine.openai_client()`), in turns, so that both see the same
machine. After the first chunk with text, the stream is left: the second table has the time until
the core has aborted the request. The prompts differ, so that the prefix cache has no part in it.
"""

from __future__ import annotations

__all__ = ("main",)

import argparse
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import median, quantiles
from typing import Any, TypeAlias

import anyio
from anyio.lowlevel import checkpoint

from aiomlc import AsyncMLCEngine

_LENGTH = 1900  # Tokens, so that no stream ends by itself.

_Open: TypeAlias = Callable[[str], AbstractAsyncContextManager[AsyncIterator[Any]]]


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    arguments = parser.parse_args()
    anyio.run(_measure, arguments.rounds, backend=arguments.backend)


async def _measure(rounds: int) -> None:
    async with AsyncMLCEngine() as engine, engine.openai_client() as client:

        @asynccontextmanager
        async def from_engine(prompt: str) -> AsyncIterator[AsyncIterator[Any]]:
            fields: dict[str, Any] = {**_fields(prompt), "ignore_eos": True}
            async with engine.chat.completions.create(**fields) as chunks:
                yield aiter(chunks)

        @asynccontextmanager
        async def from_client(prompt: str) -> AsyncIterator[AsyncIterator[Any]]:
            fields: dict[str, Any] = {**_fields(prompt), "extra_body": {"ignore_eos": True}}
            stream: Any = await client.chat.completions.create(model="pebble", **fields)
            async with stream:
                yield aiter(stream)

        kinds: dict[str, _Open] = {"engine": from_engine, "client": from_client}
        first: dict[str, list[float]] = {name: [] for name in kinds}
        ends: dict[str, list[float]] = {name: [] for name in kinds}
        for number in range(-5, rounds):  # The first five warm up.
            for name, open_stream in kinds.items():
                seconds, end_seconds = await _round(
                    open_stream, f"Tell me story {number} of a fox.", _abort_waiter(engine)
                )
                if number >= 0:
                    first[name].append(seconds)
                    ends[name].append(end_seconds)

    print(f"{'ms':24}{'p50':>10}{'p99':>10}")
    for title, table in (("first chunk", first), ("left to aborted", ends)):
        for name, values in table.items():
            p99 = quantiles(values, n=100)[98]
            print(f"{title:16}{name:8}{median(values) * 1e3:10.2f}{p99 * 1e3:10.2f}")

    difference = median(first["client"]) - median(first["engine"])
    print(f"the client's first chunk comes {difference * 1e3:.2f} ms later (medians)")


def _fields(prompt: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"messages": messages, "stream": True, "max_tokens": _LENGTH, "temperature": 0}


def _abort_waiter(engine: AsyncMLCEngine) -> Callable[[], Awaitable[None]]:
    """Return what waits until the core has aborted one request more than now."""
    expected = engine.statistics().finished["abort"] + 1

    async def wait() -> None:
        while engine.statistics().finished["abort"] < expected:
            await checkpoint()

    return wait


async def _round(
    open_stream: _Open, prompt: str, wait_for_abort: Callable[[], Awaitable[None]]
) -> tuple[float, float]:
    """Return the seconds to the first chunk with text, and from leaving to the abort."""
    start = time.perf_counter()
    async with open_stream(prompt) as chunks:
        async for chunk in chunks:
            if chunk.choices[0].delta.content:
                break

        first = time.perf_counter()

    await wait_for_abort()
    return first - start, time.perf_counter() - first


if __name__ == "__main__":
    main()
