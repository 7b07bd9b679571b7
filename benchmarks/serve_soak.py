"""Soak test of the HTTP server: many badly behaved clients, over sockets.

    python -m benchmarks.serve_soak --seconds 60 --clients 200 [--server hypercorn --backend trio]

Clients read streams, fast and slowly, leave at any moment, and send bad bodies, wrong keys and what
is not HTTP to `aiomlc serve` with the bundled model, with pauses of `--pause` seconds on average.
Every exchange must end in a defined way. Afterwards no request may be left, every page must be free
and the server's memory must not have grown. Prints the outcomes and how long `/health` took, which
another process measures; the exit status is 1 if a condition is violated.
"""

from __future__ import annotations

__all__ = ("main",)

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Any, final

import anyio
import orjson
from anyio import create_task_group, fail_after, sleep
from anyio.abc import SocketStream

_KEY = "soak-key"
_START_SECONDS = 120
_EXCHANGE_SECONDS = 120
_IDLE_SECONDS = 30
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
_EXPECTED = frozenset({200, 400, 401, 404, 408, 413, 415, 429})
_GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
_MESSAGES = [{"role": "user", "content": "Tell me a story about a fox called Rosa."}]
_BAD_BODIES = (b"{", b"[]", b'{"messages": 1}', b'{"messages": []}', b"\xff", b"[" * 10_000)
_NO_HTTP = (
    b"\x16\x03\x01\r\n\r\n",
    b"GET\r\n\r\n",
    b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
)


def main() -> None:
    """Run the server and the clients, and print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument(
        "--pause", type=float, default=1.0, help="mean seconds between a client's exchanges"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--server", choices=("uvicorn", "hypercorn"), default="uvicorn")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--allowed-growth-mb", type=float, default=64)
    violations = anyio.run(_soak, parser.parse_args())
    for violation in violations:
        print(violation, file=sys.stderr)

    sys.exit(bool(violations))


@final
class _Client:
    """A client that opens a connection for each request, and counts how they end."""

    def __init__(self, port: int, random: Random, outcomes: Counter[str], pause: float) -> None:
        self._port = port
        self._pause = pause
        self._random = random
        self._outcomes = outcomes
        self._behaviors: tuple[Callable[[], Awaitable[str]], ...] = (
            self._complete,
            self._stream,
            self._read_slowly,
            self._leave,
            self._leave,
            self._send_bad_body,
            self._send_wrong_key,
            self._send_no_http,
        )

    async def run(self, deadline: float) -> None:
        """Send requests of random behaviors until `deadline`."""
        while anyio.current_time() < deadline:
            behave = self._random.choice(self._behaviors)
            try:
                with fail_after(_EXCHANGE_SECONDS):
                    outcome = await behave()
            except (TimeoutError, OSError, anyio.BrokenResourceError, AssertionError) as error:
                outcome = f"UNDEFINED {behave.__name__}: {error!r}"

            self._outcomes[outcome] += 1
            if self._pause:
                await sleep(self._random.expovariate(1 / self._pause))

    async def _complete(self) -> str:
        return self._defined(await self._exchange(self._chat(stream=False)), b"}")

    async def _stream(self) -> str:
        return self._defined(await self._exchange(self._chat(stream=True)), b"0\r\n\r\n")

    async def _read_slowly(self) -> str:
        data = await self._exchange(self._chat(stream=True), pause=0.02)
        return self._defined(data, b"0\r\n\r\n")

    async def _leave(self) -> str:
        request = self._chat(stream=self._random.random() < 0.7)
        if self._random.random() < 0.2:
            request = request[: self._random.randrange(len(request))]

        async with await anyio.connect_tcp("127.0.0.1", self._port) as connection:
            await connection.send(request)
            await sleep(self._random.random() * 0.5)

        return "the client left"

    async def _send_bad_body(self) -> str:
        body = self._random.choice(_BAD_BODIES)
        return self._defined(await self._exchange(_request(body)), b"}", {400})

    async def _send_wrong_key(self) -> str:
        return self._defined(await self._exchange(_request(b"{}", key="wrong")), b"}", {401})

    async def _send_no_http(self) -> str:
        data = await self._exchange(self._random.choice(_NO_HTTP))
        return self._defined(data, b"", {400}) if data else "closed"

    def _chat(self, *, stream: bool) -> bytes:
        fields: dict[str, Any] = {
            "messages": _MESSAGES,
            "max_tokens": self._random.choice((1, 8, 60)),
            "stream": stream,
            "seed": self._random.getrandbits(31),
        }
        return _request(orjson.dumps(fields))

    async def _exchange(self, request: bytes, pause: float = 0) -> bytes:
        parts: list[bytes] = []
        async with await anyio.connect_tcp("127.0.0.1", self._port) as connection:
            await connection.send(request)
            async for part in _receive(connection, 512 if pause else 65536):
                parts.append(part)
                await sleep(pause)

        return b"".join(parts)

    def _defined(
        self, data: bytes, end: bytes, statuses: set[int] | frozenset[int] = _EXPECTED
    ) -> str:
        status = int(data.split(b" ", 2)[1]) if data.startswith(b"HTTP/1.1 ") else 0
        if status not in statuses | {429} or not data.endswith(end if status == 200 else b""):
            raise AssertionError(f"{data[:100]!r} ... {data[-100:]!r}")

        return f"status {status}"


def _request(body: bytes, key: str = _KEY) -> bytes:
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"content-type: application/json\r\nauthorization: Bearer %b\r\n"
        b"content-length: %d\r\n\r\n%b" % (key.encode(), len(body), body)
    )


async def _receive(connection: SocketStream, size: int) -> AsyncIterator[bytes]:
    while True:
        try:
            yield await connection.receive(size)
        except anyio.EndOfStream:
            return


async def _get(port: int, path: str) -> str:
    request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    async with await anyio.connect_tcp("127.0.0.1", port) as connection:
        await connection.send(f"{request}authorization: Bearer {_KEY}\r\n\r\n".encode())
        return b"".join([part async for part in _receive(connection, 65536)]).decode()


@asynccontextmanager
async def _probing(port: int) -> AsyncIterator[list[float]]:
    """Probe `/health` from another process; the list has the seconds after the scope."""
    times: list[float] = []
    command = [sys.executable, "-m", "benchmarks.health_probe", str(port)]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield times
        await process.stdin.aclose()
        times += orjson.loads(b"".join([part async for part in process.stdout]) or b"[]")
        if await process.wait():
            raise RuntimeError("a probe of /health failed")


@asynccontextmanager
async def _server(arguments: argparse.Namespace, log: Path) -> AsyncIterator[tuple[int, int]]:
    """Run a server; yield its port and its process id."""
    command = [sys.executable, "-m", "aiomlc", "serve", "--port", "0", "--header-timeout", "60"]
    command += ["--server", arguments.server, "--backend", arguments.backend]
    environment = {**os.environ, "AIOMLC_API_KEY": _KEY}
    with log.open("wb") as output:
        process = await anyio.open_process(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )

    try:
        with fail_after(_START_SECONDS):
            port = await _wait_for_port(log)

        yield port, process.pid
    finally:
        process.kill()
        await process.wait()


async def _wait_for_port(log: Path) -> int:
    while True:
        found = _ADDRESS.search(await anyio.Path(log).read_text())
        if found and await _answers(int(found[1])):
            return int(found[1])

        await sleep(0.1)


async def _answers(port: int) -> bool:
    try:
        return "200" in (await _get(port, "/ready")).partition("\r\n")[0]
    except OSError:
        return False


async def _run(port: int, arguments: argparse.Namespace, seconds: float) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    deadline = anyio.current_time() + seconds
    async with create_task_group() as tasks:
        for number in range(arguments.clients):
            client = _Client(port, Random(arguments.seed + number), outcomes, arguments.pause)
            tasks.start_soon(client.run, deadline)

    return outcomes


async def _wait_until_idle(port: int) -> list[str]:
    """Return the gauges that are not 0 after a while."""
    end = anyio.current_time() + _IDLE_SECONDS
    while True:
        lines = (await _get(port, "/metrics")).splitlines()
        left = [
            line
            for line in lines
            if line.startswith(tuple(f"aiomlc:{name}{{" for name in _GAUGES))
            and float(line.rpartition(" ")[2])
        ]
        if not left or anyio.current_time() > end:
            return left

        await sleep(0.1)


async def _soak(arguments: argparse.Namespace) -> list[str]:
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "log")
        async with _server(arguments, log) as (port, process):
            await _run(port, arguments, min(10.0, arguments.seconds))  # Caches fill before.
            before = _resident_mb(process)
            async with _probing(port) as times:
                outcomes = await _run(port, arguments, arguments.seconds)

            left = await _wait_until_idle(port)
            after = _resident_mb(process)

        text = await anyio.Path(log).read_text()

    for outcome, count in sorted(outcomes.items()):
        print(f"{count:8d}  {outcome}")

    percentiles = [seconds * 1e3 for seconds in quantiles(times, n=100)]
    print(f"/health: p50 {percentiles[49]:.1f} ms, p99 {percentiles[98]:.1f} ms", end=" ")
    print(f"of {len(times)} probes, by another process")
    print(f"resident memory: {before:.0f} MB before, {after:.0f} MB after")
    print("requests and KV pages left: " + (", ".join(left) or "none"))
    violations = [outcome for outcome in outcomes if outcome.startswith("UNDEFINED")]
    violations += [f"is left: {gauge}" for gauge in left]
    if "Traceback" in text:
        violations.append(text[text.index("Traceback") :][:4000])

    if after > before + arguments.allowed_growth_mb:
        violations.append(f"memory grew by {after - before:.0f} MB")

    return violations


def _resident_mb(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
