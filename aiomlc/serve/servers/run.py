"""A server process: a socket, an ASGI server, and what signals do."""

from __future__ import annotations

__all__ = ("serve",)

import gc
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from anyio import CancelScope, Event, create_task_group, open_signal_receiver

from aiomlc.serve.app import Application
from aiomlc.serve.servers.settings import ServerSettings

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


_Runner: TypeAlias = Callable[[Application, socket.socket, ServerSettings, Event], Awaitable[None]]


async def serve(app: Application, settings: ServerSettings, bound: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, in the main thread.

    The first signal drains the application; a second one ends the process at once.

    Args:
        bound: The socket of `settings.listen`, which is closed at the end.
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
        from aiomlc.serve.servers.hypercorn import run_hypercorn  # An optional dependency.

        return run_hypercorn

    from aiomlc.serve.servers.uvicorn import run_uvicorn  # It needs asyncio.

    return run_uvicorn
