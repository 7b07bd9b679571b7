"""hypercorn's connections on trio, mended."""

from __future__ import annotations

__all__ = ("survive_closing_connections",)

import hypercorn.trio.run
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.tcp_server import TCPServer
from trio import BusyResourceError


def survive_closing_connections() -> None:
    """Make hypercorn survive a write to a connection that another task is closing.

    trio raises `BusyResourceError` then, which hypercorn 0.18 does not expect: one malformed
    request would end the server.
    """
    hypercorn.trio.run.TCPServer = _Connection  # type: ignore[attr-defined] # No setting.


class _Connection(TCPServer):
    async def protocol_send(self, event: Event) -> None:
        """Send bytes to the client, unless the connection is being closed."""
        try:
            await super().protocol_send(event)
        except BusyResourceError:
            if not isinstance(event, RawData):
                raise

            await self.protocol.handle(Closed())
