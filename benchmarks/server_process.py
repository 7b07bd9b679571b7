"""A server in a process of its own, until a scope ends."""

from __future__ import annotations

__all__ = ("Server", "running")

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

_START_SECONDS = 600
_END_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server; `{port}` stands for its port."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def running(server: Server) -> Iterator[int]:
    """Run a server until the scope ends; yield its port when it answers."""
    port = _free_port()
    command = [word.replace("{port}", str(port)) for word in server.command]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, env={**os.environ, **server.environment}, stdout=log, stderr=log
        )
        try:
            _wait_until_ready(process, port)
            yield port
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-4000:])
            raise
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:  # It does not listen yet.
            pass
        finally:
            connection.close()

        time.sleep(0.2)

    raise RuntimeError(f"the server did not start: {process.args!r}")
