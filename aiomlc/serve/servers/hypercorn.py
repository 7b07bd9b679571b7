"""hypercorn, which runs on asyncio and on trio."""

from __future__ import annotations

__all__ = ("run_hypercorn",)

import os
import socket
from collections.abc import Collection
from functools import partial
from typing import Any, cast, final

import h11
from anyio import Event
from anyio.lowlevel import checkpoint, current_token
from hypercorn.config import Config
from hypercorn.logging import Logger
from hypercorn.protocol.h11 import H11Protocol
from starlette.types import ASGIApp

from aiomlc.serve.servers.settings import ServerSettings

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
    config.logger_class = cast(Any, partial(_Logger, quiet_paths=settings.quiet_paths))
    if not is_trio:
        from hypercorn.asyncio import serve
    else:
        from hypercorn.trio import serve

        from aiomlc.serve.servers.hypercorn_trio import mend_connections

        mend_connections()

    # HTTP/2 without TLS, which no client of ours uses, would only be a second way in.
    H11Protocol._check_protocol = _stay_with_http_1  # type: ignore[method-assign] # No setting.
    await serve(cast(Any, app), config, shutdown_trigger=stop.wait)


async def _stay_with_http_1(self: H11Protocol, event: h11.Request) -> None:
    """Ignore offers of HTTP/2, in place of hypercorn's upgrade."""


@final
class _Logger(Logger):
    """A logger that logs the address once, not for each listener, and leaves out some paths."""

    _last_info: str | None = None

    def __init__(self, config: Config, *, quiet_paths: Collection[str]) -> None:
        super().__init__(config)
        self._quiet_paths = quiet_paths

    async def access(self, request: Any, response: Any, request_time: float) -> None:  # noqa: ANN401
        if request["path"] not in self._quiet_paths:
            await super().access(request, response, request_time)
        else:
            await checkpoint()

    async def info(self, message: str, *args: object, **kwargs: object) -> None:
        is_new, self._last_info = message != self._last_info, message
        if is_new:
            await super().info(message, *args, **kwargs)
        else:
            await checkpoint()
