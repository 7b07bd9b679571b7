"""The example of a web application: events, errors, and clients that go away."""

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


async def test_an_answer_comes_as_events() -> None:
    app = create_app(AsyncMLCEngine(loader=fake_loader(replies=["Hi!"])))
    async with app.router.lifespan_context(app):
        response = await post(app, HELLO)

    assert response.headers["content-type"].startswith("text/event-stream")
    assert text_of(response) == "Hi!"


async def test_a_request_that_is_refused_is_told_with_a_status() -> None:
    bodies: list[object] = [b"{", b"\xff", [], "a"]
    app = create_app(AsyncMLCEngine(loader=fake_loader(FakeCore(max_live=0))))
    async with app.router.lifespan_context(app):
        refused = await post(app, {**HELLO, "max_tokens": -1})
        empty = await post(app, {})
        malformed = [await post(app, body) for body in bodies]
        overloaded = await post(app, HELLO)

    closed = await post(app, HELLO)
    assert {answer.status_code for answer in (refused, empty, *malformed)} == {400}
    assert {answer.status_code for answer in (overloaded, closed)} == {503}
    assert "max_tokens" in refused.json()["error"]["message"]


async def test_an_error_in_the_middle_is_an_event() -> None:
    core = FakeCore(["Hi!"], failures={1: "no more"})
    app = create_app(AsyncMLCEngine(loader=fake_loader(core)))
    async with app.router.lifespan_context(app):
        response = await post(app, HELLO)

    assert "event: error\ndata: " in response.text
    assert "no more" in response.text


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
async def test_a_client_that_goes_away_ends_its_answer_and_no_other(spec_version: str) -> None:
    """Older servers send a message; newer ones fail to write."""
    core = FakeCore(["x" * 100, "Hi!"], hand_stepped=True)
    app = create_app(AsyncMLCEngine(loader=fake_loader(core)))
    requests: list[dict[str, Any]] = [{"type": "http.request", "body": json.dumps(HELLO).encode()}]
    is_told = Event()

    async def receive() -> dict[str, Any]:
        if requests:
            return requests.pop()

        if spec_version == "2.4":
            await sleep_forever()

        await is_told.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message.get("body"):
            is_told.set()
            if spec_version == "2.4":
                raise OSError("the client went away")

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
