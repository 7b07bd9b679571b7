"""The example FastAPI application: its endpoints, errors, and OpenAI's API beside them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeCore, fake_loader
from examples.fastapi_app import create_site

pytestmark = pytest.mark.timeout(30)


@asynccontextmanager
async def open_client(core: FakeCore) -> AsyncIterator[httpx2.AsyncClient]:
    """Run the application, and return a client of it."""
    site = create_site(AsyncMLCEngine(loader=fake_loader(core)))
    transport = httpx2.ASGITransport(app=site)
    async with (
        site.router.lifespan_context(site),
        httpx2.AsyncClient(transport=transport, base_url="http://app") as client,
    ):
        yield client


async def test_an_endpoint_gets_a_whole_answer() -> None:
    core = FakeCore(["42"])
    async with open_client(core) as client:
        response = await client.post("/sums", json={"first": 12, "second": 30})

    assert response.json() == {"answer": "42", "tokens": 2}
    assert b"What is 12 plus 30?" in bytes(core.prompts[0])


async def test_an_answer_is_streamed_as_events() -> None:
    async with open_client(FakeCore(["Hi!"])) as client:
        response = await client.get("/answers", params={"question": "Hello"})

    *events, end = response.text.removesuffix("\n\n").split("\n\n")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "".join(json.loads(event.removeprefix("data: ")) for event in events) == "Hi!"
    assert end == "event: end\ndata: null"


async def test_an_error_during_the_stream_is_an_event() -> None:
    async with open_client(FakeCore(["Hi!"], failures={1: "no more"})) as client:
        response = await client.get("/answers", params={"question": "Hello"})

    assert response.status_code == 200
    assert "event: error\ndata: " in response.text
    assert "no more" in response.text
    assert "event: end" not in response.text


async def test_errors_have_a_status() -> None:
    async with open_client(FakeCore(max_live=0)) as client:
        overloaded = await client.get("/answers", params={"question": "Hello"})
        too_long = await client.post("/sums", json={"first": 10**2000, "second": 1})
        invalid = await client.post("/sums", json={"first": "x"})

    assert [r.status_code for r in (overloaded, too_long, invalid)] == [503, 400, 422]
    assert overloaded.json()["detail"]


async def test_the_api_is_mounted() -> None:
    async with open_client(FakeCore(["Hi!"])) as client:
        models = await client.get("/llm/v1/models")
        completion = await client.post(
            "/llm/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hello"}]}
        )

    assert len(models.json()["data"]) == 1
    assert completion.json()["choices"][0]["message"]["content"] == "Hi!"
