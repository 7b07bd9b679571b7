"""Clients of an application without a socket: httpx2's, and one that sends and reads by hand."""

from __future__ import annotations

__all__ = (
    "CHAT",
    "ManualRequest",
    "events_of",
    "http_client",
    "lifespan",
    "no_content",
    "serving",
    "text_of",
)

import json
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, final

import httpx2
from anyio import Event, create_task_group
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aiomlc import AsyncMLCEngine
from aiomlc.serve import Application, ServerOptions, create_app
from aiomlc.testing import FakeCore, fake_loader

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}


def http_client(app: ASGIApp, *, headers: Mapping[str, str] | None = None) -> httpx2.AsyncClient:
    """Return a client of an application."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://app", headers=headers)


@asynccontextmanager
async def serving(
    core: FakeCore | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401 - the fields of `ServerOptions`.
) -> AsyncIterator[tuple[Application, httpx2.AsyncClient]]:
    """Serve a scripted engine with these options; yield the application and a client."""
    engine = AsyncMLCEngine(loader=fake_loader(core or FakeCore(["Hello!"])))
    async with engine:
        app = create_app({"fake": engine}, ServerOptions(**options))
        async with http_client(app, headers=headers) as client:
            yield app, client


@asynccontextmanager
async def lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Start an application, and shut it down, as a server does."""
    started, ends, ended = Event(), Event(), Event()
    messages = iter(({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}))

    async def receive() -> Message:
        message = next(messages)
        if message["type"] == "lifespan.shutdown":
            await ends.wait()
        return message

    async def send(message: Message) -> None:
        (started if message["type"] == "lifespan.startup.complete" else ended).set()

    async def run() -> None:
        await app({"type": "lifespan", "state": {}}, receive, send)

    async with create_task_group() as tasks:
        tasks.start_soon(run)
        await started.wait()
        yield
        ends.set()
        await ended.wait()


async def no_content(scope: Scope, receive: Receive, send: Send) -> None:
    """An application whose answers are empty."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return

    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def events_of(text: str) -> list[Any]:
    """Return the JSON values of the events in a stream, and the other data as text."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(item) if item.startswith("{") else item for item in data]


def text_of(events: list[Any]) -> str:
    """Return the text of a chat completion's chunks."""
    deltas = (choice["delta"] for event in events[:-1] for choice in event.get("choices", ()))
    return "".join(delta.get("content") or "" for delta in deltas)


@final
class ManualRequest:
    """A POST request whose client reads when `reads` is set and leaves when `disconnect` is called.

    Args:
        app: The application.
        path: The path of the request.
        fields: The JSON body, or the bytes of another body.
        content_type: The type of the body.
    """

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        fields: Mapping[str, Any] | bytes,
        content_type: str = "application/json",
    ) -> None:
        self._app = app
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", content_type.encode())],
        }
        body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        self._body: bytes | None = body
        self._gone = Event()
        self.reads: Event = Event()
        self.reads.set()
        self.status: int | None = None
        self.body = b""
        self.parts: list[bytes] = []  #: The parts of the body.
        self.has_body: Event = Event()  #: Set by the first part of the body.
        self.is_complete: bool = False

    def disconnect(self) -> None:
        """Go away."""
        self._gone.set()

    async def run(self) -> None:
        """Send the request, and read the response until its end or the end of the connection."""
        await self._app(self.scope, self.receive, self._send)

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next message to the application."""
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}

        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return

        self.parts.append(message.get("body", b""))
        self.body += self.parts[-1]
        self.is_complete = not message.get("more_body", False)
        self.has_body.set()
        await self.reads.wait()
