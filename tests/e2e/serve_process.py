"""`aiomlc serve` in a process of its own, and clients of it."""

from __future__ import annotations

__all__ = ("ServerProcess", "open_client", "run_server")

import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from aiomlc import AsyncMLCEngine
from tests.e2e.programs import ROOT

_START_SECONDS = 100
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class ServerProcess:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def http(self, **options: Any) -> httpx2.Client:  # noqa: ANN401 - httpx2's.
        """Return a client of the server."""
        return httpx2.Client(base_url=self.url, timeout=60, **options)

    def openai(self) -> openai.OpenAI:
        """Return OpenAI's client of the server."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def connect(self) -> socket.socket:
        """Return a connection to the server."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def gauge(self, name: str) -> float:
        """Return the value of a metric of the one model."""
        with self.http() as client:
            text = client.get("/metrics").text

        (line,) = (line for line in text.splitlines() if line.startswith((name + "{", name + " ")))
        return float(line.rpartition(" ")[2])

    def wait_for(self, name: str, value: float) -> None:
        """Wait until a metric has a value; the test's time limit applies."""
        while self.gauge(name) != value:
            time.sleep(0.01)


@contextmanager
def run_server(
    directory: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Run a server on a free port of loopback until the scope ends."""
    log = directory / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "aiomlc", "serve", *arguments, "--port", "0"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )

    try:
        yield ServerProcess(process, _wait_for_port(process, log), log)
    finally:
        process.kill()
        process.wait()


def _wait_for_port(process: subprocess.Popen[bytes], log: Path) -> int:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if found := _ADDRESS.search(log.read_text()):
            port = int(found[1])
            if _accepts(port):
                return port

        if process.poll() is not None:
            break

        time.sleep(0.05)

    raise RuntimeError(f"the server did not start: {log.read_text()}")


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False

    return True


@asynccontextmanager
async def open_client(
    place: str, request: pytest.FixtureRequest
) -> AsyncIterator[openai.AsyncOpenAI]:
    """Yield a client of an engine in this process, or of the fixture `server`."""
    if place == "server":
        url = request.getfixturevalue("server").url
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            yield client
    else:
        async with AsyncMLCEngine() as engine, engine.openai_client() as client:
            yield client
