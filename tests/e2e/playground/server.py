"""Serve the bundled model at `/`, and under a prefix; the first line of the output is the port.

Run by the tests as a program.
"""

from __future__ import annotations

__all__ = ("PREFIX",)

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from aiomlc import AsyncMLCEngine
from aiomlc.serve import create_app

PREFIX = "/some/prefix"


def _main() -> None:
    engine = AsyncMLCEngine()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with engine:
            yield

    served = create_app(engine)
    app = Starlette(routes=[Mount(PREFIX, served), Mount("/", served)], lifespan=lifespan)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)  # noqa: T201 - read by the tests.
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    _main()
