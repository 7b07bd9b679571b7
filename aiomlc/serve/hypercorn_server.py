"""hypercorn, which runs on asyncio and on trio."""

from __future__ import annotations

__all__ = ("run_hypercorn",)

import os
import socket
from typing import Any, cast

from anyio import Event
from anyio.lowlevel import current_token
from hypercorn.config import Config
from starlette.types import ASGIApp

from aiomlc.serve.server import ServerSettings


async def run_hypercorn(
    app: ASGIApp, bound: socket.socket, settings: ServerSettings, stop: Event
) -> None:
    """Serve an application on a bound socket, on asyncio or trio, until `stop` is set."""
    config = Config()
    config.bind = [f"fd://{os.dup(bound.fileno())}"]  # It closes the descriptor.
    config.keep_alive_timeout = settings.header_timeout  # Also before the first request.
    config.h11_max_incomplete_size = settings.max_header_size
    config.h2_max_header_list_size = settings.max_header_size
    config.include_server_header = False
    config.accesslog = "-" if settings.access_log else None
    config.errorlog = "-"
    # With asyncio, the token is the loop.
    if hasattr(current_token().native_token, "create_task"):
        from hypercorn.asyncio import serve
    else:
        from hypercorn.trio import serve

        from aiomlc.serve.hypercorn_trio import survive_closing_connections

        survive_closing_connections()

    await serve(cast(Any, app), config, shutdown_trigger=stop.wait)
