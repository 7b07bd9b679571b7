"""An HTTP server of images on the loopback interface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from anyio import (
    BrokenResourceError,
    EndOfStream,
    create_task_group,
    create_tcp_listener,
    sleep_forever,
)
from anyio.abc import SocketAttribute, SocketStream


@dataclass
class FileServer:
    """The answers of a server by path, and what it was asked for."""

    answers: Mapping[str, bytes]
    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    hangs: bool = False  #: Whether an answer never ends.

    async def serve(self, stream: SocketStream) -> None:
        """Answer one request, unless the client has gone."""
        with suppress(EndOfStream, BrokenResourceError):
            await self._answer(stream)

    async def _answer(self, stream: SocketStream) -> None:
        async with stream:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += await stream.receive()

            self.requests.append(head)
            path = head.split(b" ")[1].decode()
            await stream.send(self.answers.get(path, answer(404, b"")))
            if self.hangs:
                await sleep_forever()


def answer(status: int, content: bytes, **headers: str) -> bytes:
    """Return an answer of HTTP; `content_length` replaces the right one."""
    fields = {"content_length": str(len(content)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    head = "\r\n".join([f"HTTP/1.1 {status} Status", *lines, "", ""])
    return head.encode() + content


def redirect(location: str, status: int = 302) -> bytes:
    """Return a redirect."""
    return answer(status, b"", location=location)


@asynccontextmanager
async def file_server(host: str = "127.0.0.1", **answers: bytes) -> AsyncIterator[FileServer]:
    """Serve answers by path: `a` is the one of `/a`."""
    server = FileServer({f"/{name}": content for name, content in answers.items()})
    listener = await create_tcp_listener(local_host=host)
    server.port = listener.extra(SocketAttribute.local_port)
    async with listener, create_task_group() as group:
        group.start_soon(listener.serve, server.serve)
        yield server
        group.cancel_scope.cancel()
