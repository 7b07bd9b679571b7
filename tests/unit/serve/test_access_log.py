"""The access log of both servers, without the requests of probes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from aiomlc.serve.servers.hypercorn import run_hypercorn
from aiomlc.serve.servers.settings import ServerSettings, listen
from aiomlc.serve.servers.uvicorn import run_uvicorn
from tests.unit.serve.asgi import no_content

_PATHS = ("/health", "/v1/models", "/metrics?x=1", "/healthy")


@pytest.fixture(autouse=True)
def _restored_loggers() -> Iterator[None]:
    """Undo what uvicorn and hypercorn set: handlers of this test's output."""
    names = ("uvicorn", "uvicorn.error", "uvicorn.access", "hypercorn.access", "hypercorn.error")
    loggers = [logging.getLogger(name) for name in names]
    before = [(each.handlers[:], each.filters[:], each.level, each.propagate) for each in loggers]
    yield
    for logger, (handlers, filters, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.filters[:] = handlers, filters
        logger.setLevel(level)
        logger.propagate = propagate


async def _request(run: Any, settings: ServerSettings) -> None:  # noqa: ANN401
    """Serve, and request each path once."""
    stop = anyio.Event()
    with listen(settings) as bound:
        bound.listen()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, no_content, bound, settings, stop)
            for path in _PATHS:
                async with await anyio.connect_tcp(*bound.getsockname()) as client:
                    head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
                    await client.send(head.encode())
                    async for _ in client:
                        pass

            stop.set()


@pytest.mark.parametrize(
    ("run", "backend"),
    [(run_uvicorn, "asyncio"), (run_hypercorn, "asyncio"), (run_hypercorn, "trio")],
    ids=["uvicorn", "hypercorn", "hypercorn on trio"],
)
@pytest.mark.parametrize(
    ("access_log", "quiet_paths", "logged"),
    [
        (True, (), ["/health", "/v1/models", "/metrics", "/healthy"]),
        (True, ("/health", "/metrics"), ["/v1/models", "/healthy"]),
        (False, (), []),
    ],
    ids=["all", "without probes", "none"],
)
def test_requests_are_logged_but_for_quiet_paths(
    run: Callable[..., Awaitable[None]],
    backend: str,
    access_log: bool,
    quiet_paths: tuple[str, ...],
    logged: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = ServerSettings(port=0, access_log=access_log, quiet_paths=frozenset(quiet_paths))
    anyio.run(_request, run, settings, backend=backend)

    captured = capfd.readouterr()
    lines = [line for line in (captured.out + captured.err).splitlines() if '"GET ' in line]
    assert [line.split('"GET ')[1].split()[0].split("?")[0] for line in lines] == logged
