"""Lead the connections of a process to one public host to a port of this machine.

Python imports this module at its start, if the folder is on the path.
"""

from __future__ import annotations

__all__ = ()

import os
import socket
from typing import Any

_HOST = os.environ["REDIRECTED_HOST"]
_PORT = int(os.environ["REDIRECTED_PORT"])
_ADDRESS = "185.199.108.153"  # A public one, so that it may be asked for images.

_getaddrinfo = socket.getaddrinfo
_connect = socket.socket.connect


def _redirected_getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    name = host.decode() if isinstance(host, bytes) else host
    return _getaddrinfo(_ADDRESS if name == _HOST else host, port, *args, **kwargs)


def _redirected_connect(self: socket.socket, address: Any) -> None:  # noqa: ANN401
    is_host = isinstance(address, tuple) and address[0] == _ADDRESS
    _connect(self, ("127.0.0.1", _PORT) if is_host else address)


socket.getaddrinfo = _redirected_getaddrinfo
socket.socket.connect = _redirected_connect  # type: ignore[method-assign, assignment]
