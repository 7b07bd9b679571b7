"""The application under a prefix of another one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import pytest
from fastapi import FastAPI
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from aiomlc import AsyncMLCEngine
from aiomlc.serve import ServerOptions, create_app
from tests.e2e.programs import ROOT
from tests.unit.serve.asgi import http_client, lifespan

CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What is the capital of Italy?"}],
    "temperature": 0,
}


def in_starlette(app: ASGIApp) -> ASGIApp:
    return Starlette(routes=[Mount("/llm", app=app)])


def in_fastapi(app: ASGIApp) -> ASGIApp:
    site = FastAPI()
    site.mount("/llm", app)
    return site


def in_litestar(app: ASGIApp) -> ASGIApp:
    site: Any = Litestar([asgi("/llm", is_mount=True, copy_scope=True)(app)])
    return cast("ASGIApp", site)


MOUNTS = pytest.mark.parametrize("mount", [in_starlette, in_fastapi, in_litestar])


async def assert_serves(site: ASGIApp) -> None:
    """Assert that the paths below the prefix answer, and errors have their shape."""
    async with http_client(site) as client:
        whole = await client.post("/llm/v1/chat/completions", json=CHAT)
        streamed = await client.post("/llm/v1/chat/completions", json={**CHAT, "stream": True})
        health = await client.get("/llm/health")
        models = await client.get("/llm/v1/models/pebble")
        missing = await client.get("/llm/nowhere")

    assert whole.json()["choices"][0]["message"]["content"]
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert health.json()["status"] == "ok"
    assert models.json()["id"] == "pebble"
    # Litestar keeps the prefix to itself.
    assert missing.json()["error"]["message"].removeprefix("GET /llm") in (
        "/nowhere: Not Found",
        "GET /nowhere: Not Found",
    )


@MOUNTS
async def test_the_first_request_opens_the_engine(mount: Callable[[ASGIApp], ASGIApp]) -> None:
    app = create_app(AsyncMLCEngine())
    try:
        await assert_serves(mount(app))
    finally:
        app.terminate()


@MOUNTS
async def test_keys_are_required_below_the_prefix(mount: Callable[[ASGIApp], ASGIApp]) -> None:
    site = mount(create_app("mock://echo", ServerOptions(api_keys=("key",))))
    async with http_client(site) as client:
        assert (await client.get("/llm/v1/models")).status_code == 401
        assert (await client.get("/llm/health")).status_code == 200


async def test_the_page_shows_a_site_with_a_lifespan() -> None:
    page = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    (program,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "FastAPI" in block
    )
    names: dict[str, Any] = {}
    exec(program, names)
    async with lifespan(names["site"]):
        await assert_serves(names["site"])

    assert names["llm"].is_draining
