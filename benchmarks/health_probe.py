"""Probe `/health` of a server until the standard input ends; prints the seconds of each probe.

    python -m benchmarks.health_probe PORT

It runs in a process of its own, so that a load generator's busy event loop is not measured.
"""

from __future__ import annotations

__all__ = ("main",)

import json
import select
import socket
import sys
import time

_REQUEST = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
_PAUSE_SECONDS = 0.05
_LIMIT_SECONDS = 60


def main() -> None:
    """Probe, and print a JSON array."""
    port = int(sys.argv[1])
    times: list[float] = []
    while not select.select([sys.stdin], [], [], _PAUSE_SECONDS)[0]:
        times.append(_probe(port))

    json.dump(times, sys.stdout)


def _probe(port: int) -> float:
    before = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=_LIMIT_SECONDS) as connection:
        connection.sendall(_REQUEST)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)

    answer = b"".join(parts)
    if not answer.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"/health: {answer[:200]!r}")

    return time.perf_counter() - before


if __name__ == "__main__":
    main()
