"""The CPU time that the HTTP server adds to a chunk of a stream.

    python -m benchmarks.serve_overhead [--chunks 20000] [--streams 8] [--repeats 5]

Streams of ready-made chunks, one per turn of the event loop, are read in the process, and by a
client in another process, over sockets, from uvicorn: once as the application sends them, and once
as a bare application sends bytes of the same size. The table has the CPU time of the event loop's
thread per chunk: in user mode that of Python, in total also that of the kernel for the sockets.
The columns grow by what uvicorn and the sockets cost, and by what the application costs.
"""

from __future__ import annotations

__all__ = ("CLIENT", "main")

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import final

import anyio
from anyio import Event, create_task_group
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectStreamStatistics
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from aiomlc import AsyncMLCEngine
from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.serve.context import Context
from aiomlc.serve.endpoints.generation import CHAT, GenerationEndpoint
from aiomlc.serve.http.admission import Admission
from aiomlc.serve.http.event_encoder import ChatEventEncoder
from aiomlc.serve.http.gate import Gate, RequestIds
from aiomlc.serve.models import to_registry
from aiomlc.serve.options import ServerOptions
from aiomlc.serve.servers.settings import ServerSettings, listen
from aiomlc.serve.servers.uvicorn import run_uvicorn

_PATH, _BARE_PATH = "/v1/chat/completions", "/bare"
_FIELDS = {"messages": [{"role": "user", "content": "a"}], "stream": True}
#: A program that reads streams of events; prints the seconds and the number of events.
CLIENT = """
import socket, sys, threading, time
port, streams, body, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode(), sys.argv[4]
def read():
    head = (
        f"POST {path} HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n"
        f"content-type: application/json\\r\\ncontent-length: {len(body)}\\r\\n\\r\\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + body)
        number, rest = 0, b""
        while part := connection.recv(65536):
            rest += part
            number += rest.count(b"data: {")
            rest = rest[-6:] if not rest.endswith(b"data: {") else b""
        numbers.append(number)
numbers = []
threads = [threading.Thread(target=read) for _ in range(streams)]
start = time.perf_counter()
for thread in threads: thread.start()
for thread in threads: thread.join()
print(time.perf_counter() - start, sum(numbers))
"""


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=20_000, help="chunks of each measurement")
    parser.add_argument("--streams", type=int, default=8, help="concurrent streams")
    parser.add_argument("--repeats", type=int, default=5)
    anyio.run(_measure, parser.parse_args())


@final
class _ReadyChunks(ChunkStream[None, ChatCompletionChunk]):
    """Equal chunks of text, one per turn of the event loop."""

    def __init__(self, number: int) -> None:
        super().__init__("chatcmpl-1", None)
        self._left = number
        choice = {"index": 0, "delta": {"content": " word"}, "finish_reason": None}
        fields = {"id": "chatcmpl-1", "created": 1, "model": "stub", "choices": [choice]}
        self._chunks = (ChatCompletionChunk.model_validate(fields),)

    def _next_delta(self) -> Awaitable[None]:
        if self._left == 0:
            raise StopAsyncIteration

        self._left -= 1
        return checkpoint()

    def _delta_to_chunks(self, delta: None) -> Iterable[ChatCompletionChunk]:
        return self._chunks

    def _cancel(self) -> None:
        self._left = 0

    def _delta_statistics(self) -> MemoryObjectStreamStatistics:
        return MemoryObjectStreamStatistics(0, 0, 0, 0, 0, 0)


@final
class _Resource:
    """What answers a chat with ready chunks."""

    def __init__(self, length: int) -> None:
        self._length = length

    async def open(self, _: object) -> _ReadyChunks:
        await checkpoint()
        return _ReadyChunks(self._length)

    async def complete(self, _: object) -> ChatCompletionChunk:
        raise NotImplementedError


@final
class _Bare:
    """An application that does nothing but send equal bytes."""

    def __init__(self, length: int) -> None:
        self._length = length

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chunks = _ReadyChunks(self._length)
        event = ChatEventEncoder().encode([await chunks.__anext__()])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": event, "more_body": True})
        async for _ in chunks:
            await send({"type": "http.response.body", "body": event, "more_body": True})

        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _make_app(length: int) -> Starlette:
    options = ServerOptions()
    registry = to_registry(AsyncMLCEngine("mock://echo"))
    context = Context(registry, options, Admission(options), ignored=None)
    resource = _Resource(length)
    endpoint = GenerationEndpoint(context, replace(CHAT, resource=lambda _: resource))
    return Starlette(
        routes=[Route(_PATH, endpoint, methods=["POST"]), Route(_BARE_PATH, _Bare(length))],
        middleware=[
            Middleware(RequestIds, statuses=context.statuses),
            Middleware(Gate, options=options, admission=context.admission),
        ],
    )


async def _measure(arguments: argparse.Namespace) -> None:
    length = arguments.chunks // arguments.streams
    settings = ServerSettings(port=0, access_log=False)
    bound = listen(settings)
    stop = Event()
    columns: dict[str, list[tuple[float, float]]] = {"in process": [], "bare": [], "served": []}
    async with create_task_group() as tasks:
        tasks.start_soon(run_uvicorn, _make_app(length), bound, settings, stop)
        for _ in range(arguments.repeats):
            columns["in process"].append(await _time_in_process(length, arguments.streams))
            port = bound.getsockname()[1]
            for name, path in (("bare", _BARE_PATH), ("served", _PATH)):
                times = await _time_served(port, path, arguments.streams, length)
                columns[name].append(times)

        stop.set()

    print(f"{'':16}" + "".join(f"{name:>12}" for name in columns) + "   us of CPU per chunk")
    for index, mode in enumerate(("user", "total")):
        for name, choose in (("median", statistics.median), ("minimum", min)):
            row = (choose(times[index] for times in column) for column in columns.values())
            print(f"{mode:6}{name:10}" + "".join(f"{value:12.1f}" for value in row))


async def _time_in_process(length: int, streams: int) -> tuple[float, float]:
    async def read() -> None:
        async for _ in _ReadyChunks(length):
            pass

    before = resource.getrusage(resource.RUSAGE_THREAD)
    async with create_task_group() as tasks:
        for _ in range(streams):
            tasks.start_soon(read)

    return _times_per_chunk(before, length * streams)


async def _time_served(port: int, path: str, streams: int, length: int) -> tuple[float, float]:
    command = [sys.executable, "-c", CLIENT, str(port), str(streams), json.dumps(_FIELDS), path]
    before = resource.getrusage(resource.RUSAGE_THREAD)
    result = await anyio.run_process(command, stderr=subprocess.STDOUT)
    number = length * streams
    times = _times_per_chunk(before, number)
    if int(result.stdout.split()[1]) != number:
        raise RuntimeError(f"the client read {result.stdout!r} events, expected {number}")

    return times


def _times_per_chunk(before: resource.struct_rusage, number: int) -> tuple[float, float]:
    """Return the microseconds in user mode and in total."""
    after = resource.getrusage(resource.RUSAGE_THREAD)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return user / number * 1e6, (user + system) / number * 1e6


if __name__ == "__main__":
    main()
