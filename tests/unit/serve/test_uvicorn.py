"""Streamed parts that uvicorn writes without h11, as clients read them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio import Event, create_task_group, to_thread
from starlette.types import Receive, Scope, Send

from aiomlc.serve.servers.settings import ServerSettings, listen
from aiomlc.serve.servers.uvicorn import run_uvicorn
from tests.e2e.raw_http import read_all

senders: list[str] = []  # The types of what the application got to send with.
PARTS = (b"first", b"", b"x" * 300_000, b"0\r\n\r\n", b"last")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Send the parts, without or with their length."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return

    senders.append(type(send).__name__)
    length = str(len(b"".join(PARTS))).encode()
    headers = [(b"content-length", length)] if scope["path"] == "/length" else []
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for part in PARTS[:-1]:
        await send({"type": "http.response.body", "body": part, "more_body": True})

    await send({"type": "http.response.body", "body": PARTS[-1], "more_body": False})


@asynccontextmanager
async def serving() -> AsyncIterator[Any]:
    """Yield the address of a server."""
    stop = Event()
    with listen(ServerSettings(port=0)) as bound:
        async with create_task_group() as tasks:
            settings = ServerSettings(access_log=False)
            bound.listen()
            tasks.start_soon(run_uvicorn, app, bound, settings, stop)
            yield bound.getsockname()
            stop.set()


def exchange(address: Any, path: str, version: str) -> bytes:  # noqa: ANN401 - a socket's.
    """Return the bytes of two responses on one connection, or of one of HTTP/1.0."""
    request = f"POST {path} HTTP/{version}\r\nhost: localhost\r\ncontent-length: 0\r\n"
    requests = [request, request + "connection: close\r\n"] if version == "1.1" else [request]
    with socket.create_connection(address, timeout=60) as connection:
        for text in requests:
            connection.sendall(f"{text}\r\n".encode())

        return read_all(connection)


@pytest.mark.parametrize(
    ("path", "version", "parts"),
    [
        (
            "/",
            "1.1",
            [b"%x\r\n%b\r\n" % (len(part), part) for part in PARTS if part] + [b"0\r\n\r\n"],
        ),
        ("/length", "1.1", list(PARTS)),
        ("/", "1.0", list(PARTS)),
    ],
)
async def test_the_parts_of_a_response(path: str, version: str, parts: list[bytes]) -> None:
    senders.clear()
    async with serving() as address:
        data = await to_thread.run_sync(exchange, address, path, version)

    assert set(senders) == {"_ChunkSender" if version == "1.1" else "method"}
    num_responses = 2 if version == "1.1" else 1
    body = b"\r\n\r\n" + b"".join(parts)
    assert data.startswith(b"HTTP/1.1 200 OK\r\n")
    assert data.endswith(body)
    assert data.count(body) == num_responses
    assert (b"transfer-encoding: chunked" in data.lower()) == (path == "/" and version == "1.1")
