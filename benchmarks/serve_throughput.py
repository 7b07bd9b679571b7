"""Tokens per second of concurrent streams: read from the library, and from `aiomlc serve`.

    python -m benchmarks.serve_throughput [--model DIR] [--streams 64] [--tokens 128] [--rounds 5]

The rounds alternate between the two. The reader of the server's sockets is a process of its own,
and the engine of the library has no request meanwhile. The last column is the server's share of the
library's rate in the same round.
"""

from __future__ import annotations

__all__ = ("main",)

import argparse
import subprocess
import sys
import time
from statistics import median
from typing import Any

import anyio
import orjson

from aiomlc import AsyncMLCEngine
from benchmarks.serve_overhead import CLIENT
from benchmarks.server_process import Server, running

_PATH = "/v1/chat/completions"


def main() -> None:
    """Measure, and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a directory; by default the bundled model")
    parser.add_argument("--mode", default="server", help="the preset of sizes")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128, help="of each stream")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "aiomlc", "serve", "--port", "{port}", "--no-access-log"]
    command += ["--mode", arguments.mode, *([arguments.model] if arguments.model else [])]
    with running(Server("aiomlc", tuple(command))) as port:
        anyio.run(_measure, arguments, port)


async def _measure(arguments: argparse.Namespace, port: int) -> None:
    fields: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Tell me a story about a fox called Rosa."}],
        "max_tokens": arguments.tokens,
        "ignore_eos": True,
        "stream": True,
    }
    total = arguments.streams * arguments.tokens
    shares: list[float] = []
    print(f"{'tokens/s':>10}{'library':>10}{'server':>10}{'share':>8}")
    async with AsyncMLCEngine(arguments.model, mode=arguments.mode) as engine:
        for number in range(-1, arguments.rounds):  # The first round warms both.
            library = total / await _read_library(engine, fields, arguments.streams)
            served = total / await _read_server(port, fields, arguments.streams)
            if number >= 0:
                shares.append(served / library)
                print(f"{number + 1:>10}{library:>10.0f}{served:>10.0f}{shares[-1]:>8.0%}")

    print(f"median share: {median(shares):.0%}")


async def _read_library(engine: AsyncMLCEngine, fields: dict[str, Any], streams: int) -> float:
    async def read() -> None:
        async with engine.chat.completions.create(**fields) as chunks:
            async for _ in chunks:
                pass

    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(streams):
            tasks.start_soon(read)

    return time.perf_counter() - start


async def _read_server(port: int, fields: dict[str, Any], streams: int) -> float:
    body = orjson.dumps(fields).decode()
    command = [sys.executable, "-S", "-c", CLIENT, str(port), str(streams), body, _PATH]
    result = await anyio.run_process(command, stderr=subprocess.STDOUT)
    seconds, _, events = result.stdout.decode().partition(" ")
    if int(events) < streams:
        raise RuntimeError(f"the client read {events} events, expected {streams} at least")

    return float(seconds)


if __name__ == "__main__":
    main()
