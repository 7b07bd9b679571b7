"""hypercorn, which runs on asyncio and on trio."""

from __future__ import annotations

__all__ = ("run_hypercorn",)

import os
import socket
from typing import Any, cast, final

from anyio import Event
from anyio.lowlevel import checkpoint, current_token
from hypercorn.config import Config
from hypercorn.logging import Logger
from starlette.types import ASGIApp

from aiomlc.serve.server import ServerSettings

# trio accepts one connection per listener and turn of the event loop. While hundreds of connections
# are busy, a turn takes milliseconds, and new ones would wait for as many turns as are before them.
_TRIO_LISTENERS = 8
# Connections that may wait to be accepted. The system drops those beyond, whose clients try again
# after a second; hypercorn's default is 100.
_BACKLOG = 2048


async def run_hypercorn(
    app: ASGIApp, bound: socket.socket, settings: ServerSettings, stop: Event
) -> None:
    """Serve an application on a bound socket, on asyncio or trio, until `stop` is set."""
    # With asyncio, the token is the loop.
    is_trio = not hasattr(current_token().native_token, "create_task")
    config = Config()
    # It closes the descriptors, which are of one socket.
    num_listeners = _TRIO_LISTENERS if is_trio else 1
    config.bind = [f"fd://{os.dup(bound.fileno())}" for _ in range(num_listeners)]
    config.backlog = _BACKLOG
    config.keep_alive_timeout = settings.header_timeout  # Also before the first request.
    config.h11_max_incomplete_size = settings.max_header_size
    config.h2_max_header_list_size = settings.max_header_size
    config.include_server_header = False
    config.accesslog = "-" if settings.access_log else None
    config.errorlog = "-"
    config.logger_class = _Logger
    if not is_trio:
        from hypercorn.asyncio import serve
    else:
        from hypercorn.trio import serve

        from aiomlc.serve.hypercorn_trio import mend_connections

        mend_connections()

    await serve(cast(Any, app), config, shutdown_trigger=stop.wait)


@final
class _Logger(Logger):
    """A logger that logs the address once, not for each listener."""

    _last_info: str | None = None

    async def info(self, message: str, *args: object, **kwargs: object) -> None:
        is_new, self._last_info = message != self._last_info, message
        if is_new:
            await super().info(message, *args, **kwargs)
        else:
            await checkpoint()
