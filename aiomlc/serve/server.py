"""A server process: a socket, an ASGI server, and what signals do."""

from __future__ import annotations

__all__ = ("ServerSettings", "listen", "serve")

import gc
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from anyio import CancelScope, Event, create_task_group, open_signal_receiver

from aiomlc.serve.app import Application

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where and how a server listens."""

    host: str = "127.0.0.1"
    port: int = 8000  #: 0 for any that is free.
    server: Literal["uvicorn", "hypercorn"] = "uvicorn"
    header_timeout: float = 10.0  #: Seconds to receive the headers of a request.
    max_header_size: int = 64 * 2**10  #: Bytes of the headers.
    #: Seconds for which SIGTERM lets the running requests continue; None for no limit.
    drain_timeout: float | None = 60.0
    access_log: bool = True  #: Whether each request is logged.
    quiet_paths: frozenset[str] = frozenset()  #: Paths whose requests are not logged.


_Runner: TypeAlias = Callable[[Application, socket.socket, ServerSettings, Event], Awaitable[None]]


def listen(settings: ServerSettings) -> socket.socket:
    """Return a socket that is bound to the address of a server.

    Raises:
        OSError: If the address is in use, or is not of this computer.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise

    return bound


async def serve(app: Application, settings: ServerSettings, bound: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, in the main thread.

    The first signal drains the application; a second one ends the process at once.

    Args:
        app: The application.
        settings: The settings of the server.
        bound: The socket of `listen`, which is closed at the end.
    """
    run = _runner(settings.server)
    gc.collect()
    gc.freeze()  # Or each full collection would visit what was imported, which takes 50 ms.
    stop = Event()
    watch_scope = CancelScope()
    with bound:
        async with create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, app, settings, stop, watch_scope)
            await run(app, bound, settings, stop)
            # hypercorn takes the cancellation of its own task for one of its failures.
            watch_scope.cancel()


async def _stop_on_signal(
    app: Application, settings: ServerSettings, stop: Event, scope: CancelScope
) -> None:
    with scope:
        with open_signal_receiver(*_SIGNALS) as signals:
            async for _ in signals:
                break

        for number in _SIGNALS:  # Also if the event loop is busy, or does not end.
            signal.signal(number, signal.SIG_DFL)

        await app.drain(settings.drain_timeout)
        stop.set()


def _runner(server: str) -> _Runner:
    if server == "hypercorn":
        from aiomlc.serve.hypercorn_server import run_hypercorn  # An optional dependency.

        return run_hypercorn

    from aiomlc.serve.uvicorn_server import run_uvicorn  # It needs asyncio.

    return run_uvicorn
