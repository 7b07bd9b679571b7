"""Serve a model at `/` and under prefixes; the first line of the output is the port.

Run by the tests as a program; its argument is a model, by default the bundled one.
"""

from __future__ import annotations

__all__ = ("PREFIX", "STALLING")

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aiomlc import AsyncMLCEngine
from aiomlc.serve import create_app

PREFIX = "/some/prefix"
STALLING = "/stalling"  # Here a response stops after thirty parts, and does not end.
_STALLED_AFTER = 30


def _stalling(app: ASGIApp) -> ASGIApp:
    async def stalling_app(scope: Scope, receive: Receive, send: Send) -> None:
        sent = 0

        async def send_or_stall(message: Message) -> None:
            nonlocal sent
            sent += 1
            if sent > _STALLED_AFTER:
                await anyio.sleep_forever()  # Until the client has gone.
            await send(message)

        await app(scope, receive, send_or_stall)

    return stalling_app


def _main() -> None:
    engine = AsyncMLCEngine(*sys.argv[1:])

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with engine:
            yield

    served = create_app(engine)
    routes = [Mount(PREFIX, served), Mount(STALLING, _stalling(served)), Mount("/", served)]
    app = Starlette(routes=routes, lifespan=lifespan)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)  # noqa: T201 - read by the tests.
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    _main()
