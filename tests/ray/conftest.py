"""Tests on Ray Serve, in the environment of `make ray`; without Ray they are not collected."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest

if importlib.util.find_spec("ray") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run on asyncio only, as Ray Serve does."""
    return "asyncio"


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    """The port of a running Ray Serve."""
    from benchmarks.ray_routing import running_serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]

    with running_serve(number):
        yield number


@pytest.fixture
async def client(port: int) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the application that a test deploys."""
    address = f"http://127.0.0.1:{port}"
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=address, timeout=300, limits=limits) as client:
        yield client
