"""hypercorn with many connections at once."""

from __future__ import annotations

import socket
import struct
import sys
from collections import Counter
from contextlib import ExitStack

import anyio
import pytest
import trio

from aiomlc.serve.servers.hypercorn import run_hypercorn
from aiomlc.serve.servers.settings import ServerSettings, listen
from tests.unit.serve.asgi import no_content

_CLIENTS = 200
_REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


class _Turns(trio.abc.Instrument):
    """Counts the connections that are accepted in each turn of the event loop."""

    def __init__(self) -> None:
        self.accepted: Counter[int] = Counter()
        self._turn = 0

    def before_io_wait(self, timeout: float) -> None:
        self._turn += 1

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if task.name.endswith("_run_handler"):
            self.accepted[self._turn] += 1


def test_eight_connections_are_accepted_in_one_turn(capfd: pytest.CaptureFixture[str]) -> None:
    settings = ServerSettings(port=0, access_log=False)
    turns = _Turns()

    async def main() -> None:
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_hypercorn, no_content, bound, settings, stop)
            for client in clients:
                stream = trio.SocketStream(trio.socket.from_stdlib_socket(client))
                answer = b"".join([part async for part in stream])
                assert answer.startswith(b"HTTP/1.1 204")

            stop.set()

    with ExitStack() as stack:
        bound = stack.enter_context(listen(settings))
        bound.listen(_CLIENTS)
        clients = [
            stack.enter_context(socket.create_connection(bound.getsockname()))
            for _ in range(_CLIENTS)
        ]
        for client in clients:
            client.sendall(_REQUEST)

        trio.run(main, instruments=[turns])

    assert sum(turns.accepted.values()) == _CLIENTS
    assert max(turns.accepted.values()) == 8
    assert capfd.readouterr().err.count("Running on") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO")
async def test_as_many_connections_wait_to_be_accepted_as_with_uvicorn() -> None:
    settings = ServerSettings(port=0, access_log=False)
    stop = anyio.Event()
    with listen(settings) as bound:
        bound.listen(1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_hypercorn, no_content, bound, settings, stop)
            async with await anyio.connect_tcp(*bound.getsockname()) as client:
                await client.send(_REQUEST)
                assert (await client.receive()).startswith(b"HTTP/1.1 204")

            # Of a listening socket, `tcpi_sacked` is the limit of the queue.
            info = bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            stop.set()

    limit_of_system = int(await anyio.Path("/proc/sys/net/core/somaxconn").read_text())
    assert struct.unpack_from("I", info, 28)[0] == min(2048, limit_of_system)
