"""hypercorn's connections on trio, mended."""

from __future__ import annotations

__all__ = ("mend_connections",)

from collections.abc import Awaitable, Callable
from typing import Any, final

import hypercorn.trio.run
import trio
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer


def mend_connections() -> None:
    """Mend what hypercorn 0.18 does with a connection that is lost, or that nobody reads.

    A write to a connection that another task is closing raises `BusyResourceError`, which it does
    not expect: one malformed request would end the server. Its writes cannot be cancelled: a client
    that does not read would keep its request, and the process, alive.

    An exchange also takes fewer turns of the event loop, each of which lasts for milliseconds while
    hundreds of connections are busy.
    """
    hypercorn.trio.run.TCPServer = _Connection  # type: ignore[attr-defined, assignment] # No setting.


class _Connection(TCPServer):
    def __init__(self, *args: Any) -> None:  # noqa: ANN401 - hypercorn's.
        super().__init__(*args)
        self.idle_task = _IdleTask()  # type: ignore[assignment]

    async def protocol_send(self, event: Event) -> None:
        """Send bytes to the client; a cancelled call closes the connection."""
        if not isinstance(event, RawData):
            await super().protocol_send(event)
            return

        if not event.data:  # The end of a body whose length is known.
            return

        try:
            self.send_lock.acquire_nowait()
        except trio.WouldBlock:
            await self.send_lock.acquire()

        try:
            await self.stream.send_all(event.data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            is_lost = True
        except trio.Cancelled:  # A part of the bytes may have been sent.
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self.stream)
            raise
        else:
            is_lost = False
        finally:
            self.send_lock.release()

        if is_lost:
            await self.protocol.handle(Closed())


@final
class _IdleTask:
    """A task of a connection that is replaced without waiting for the previous one or the next."""

    def __init__(self) -> None:
        self._scope: trio.CancelScope | None = None

    async def restart(self, tasks: TaskGroup, action: Callable[[], Awaitable[None]]) -> None:
        """Start a task, in place of the previous one."""
        await self.stop()
        self._scope = trio.CancelScope()
        tasks.spawn(_run_in, self._scope, action)

    async def stop(self) -> None:
        """Cancel the task, if there is one."""
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None


async def _run_in(scope: trio.CancelScope, action: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await action()
