"""The settings and the start of a server."""

from __future__ import annotations

__all__ = ("ServerSettings", "listen")

import socket
from dataclasses import dataclass
from typing import Literal

from aiomlc.serve.options import check_positive
from aiomlc.validation.arguments import check_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The address, the ASGI server and the limits of its connections.

    Raises:
        BadRequestError: If a limit is out of range; `param` names it.
    """

    host: str = "127.0.0.1"
    port: int = 8000  #: 0 for any that is free.
    server: Literal["uvicorn", "hypercorn"] = "uvicorn"
    header_timeout: float = 10.0  #: Seconds to receive the headers of a request.
    max_header_size: int = 64 * 2**10  #: Bytes of the headers.
    #: Seconds for which SIGTERM lets the running requests continue; None for no limit.
    drain_timeout: float | None = 60.0
    access_log: bool = True  #: Whether each request is logged.
    quiet_paths: frozenset[str] = frozenset()  #: Paths whose requests are not logged.

    def __post_init__(self) -> None:
        check_positive(self, "header_timeout", "max_header_size")
        check_seconds("drain_timeout", self.drain_timeout)


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
