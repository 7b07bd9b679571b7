"""The example web application: events, errors and clients that disconnect."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from contextlib import nullcontext
from typing import Any

import httpx2
import pytest
from anyio import Event, fail_after, sleep_forever
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect

from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeCore, fake_loader
from examples.web_app import create_app

pytestmark = pytest.mark.timeout(20)
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


async def post(app: Starlette, body: object) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://app") as client:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await client.post("/chat", content=content)


def text_of(response: httpx2.Response) -> str:
    events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


async def test_completion_is_sent_as_events() -> None:
    app = create_app(AsyncMLCEngine(loader=fake_loader(replies=["Hi!"])))
    async with app.router.lifespan_context(app):
        response = await post(app, HELLO)

    assert response.headers["content-type"].startswith("text/event-stream")
    assert text_of(response) == "Hi!"


async def test_rejected_requests_get_an_error_status() -> None:
    bodies: list[object] = [b"{", b"\xff", [], "a"]
    app = create_app(AsyncMLCEngine(loader=fake_loader(FakeCore(max_live=0))))
    async with app.router.lifespan_context(app):
        invalid = await post(app, {**HELLO, "max_tokens": -1})
        empty = await post(app, {})
        malformed = [await post(app, body) for body in bodies]
        overloaded = await post(app, HELLO)

    closed = await post(app, HELLO)
    assert {response.status_code for response in (invalid, empty, *malformed)} == {400}
    assert {response.status_code for response in (overloaded, closed)} == {503}
    assert "max_tokens" in invalid.json()["error"]["message"]


async def test_error_during_the_stream_is_sent_as_an_event() -> None:
    core = FakeCore(["Hi!"], failures={1: "no more"})
    app = create_app(AsyncMLCEngine(loader=fake_loader(core)))
    async with app.router.lifespan_context(app):
        response = await post(app, HELLO)

    assert "event: error\ndata: " in response.text
    assert "no more" in response.text


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
async def test_client_that_disconnects_cancels_only_its_request(spec_version: str) -> None:
    """Servers of ASGI 2.3 send a disconnect message; those of 2.4 raise an error on send."""
    core = FakeCore(["x" * 100, "Hi!"], hand_stepped=True)
    app = create_app(AsyncMLCEngine(loader=fake_loader(core)))
    requests: list[dict[str, Any]] = [{"type": "http.request", "body": json.dumps(HELLO).encode()}]
    has_first_chunk = Event()

    async def receive() -> dict[str, Any]:
        if requests:
            return requests.pop()

        if spec_version == "2.4":
            await sleep_forever()

        await has_first_chunk.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message.get("body"):
            has_first_chunk.set()
            if spec_version == "2.4":
                raise OSError("the client disconnected")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": spec_version},
        "http_version": "1.1",
        "method": "POST",
        "path": "/chat",
        "query_string": b"",
        "headers": [],
    }
    with fail_after(10):
        async with app.router.lifespan_context(app):
            core.allow(1)
            with pytest.raises(ClientDisconnect) if spec_version == "2.4" else nullcontext():
                await app(scope, receive, send)

            assert core.cancelled == [1]
            core.allow(1000)
            assert text_of(await post(app, HELLO)) == "Hi!"
