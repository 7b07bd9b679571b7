"""hypercorn's connections on trio, mended."""

from __future__ import annotations

__all__ = ("mend_connections",)

import hypercorn.trio.run
import trio
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.tcp_server import TCPServer


def mend_connections() -> None:
    """Mend what hypercorn 0.18 does with a connection that is lost, or that nobody reads.

    A write to a connection that another task is closing raises `BusyResourceError`, which it does
    not expect: one malformed request would end the server. Its writes cannot be cancelled: a client
    that does not read would keep its request, and the process, alive.
    """
    hypercorn.trio.run.TCPServer = _Connection  # type: ignore[attr-defined] # No setting.


class _Connection(TCPServer):
    async def protocol_send(self, event: Event) -> None:
        """Send bytes to the client; a cancelled call closes the connection."""
        if not isinstance(event, RawData):
            await super().protocol_send(event)
            return

        async with self.send_lock:
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

        if is_lost:
            await self.protocol.handle(Closed())
