"""The server takes images in chats, responses and the counting of tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.serve import ServerOptions, create_app
from aiomlc.testing import FakeCore
from tests.unit.api.chat.vision import PARTS_TEMPLATE, image_part, image_url, serve_images
from tests.unit.serve.asgi import http_client

MESSAGES = [{"role": "user", "content": [image_part(5), {"type": "text", "text": "What?"}]}]
INPUT = [{"role": "user", "content": [{"type": "input_image", "image_url": image_url(5)}]}]


@asynccontextmanager
async def serving(options: ServerOptions | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        serve_images(FakeCore(["Hello!"]), ChatTemplate(PARTS_TEMPLATE)) as (engine, _),
        http_client(create_app({"fake": engine}, options)) as client,
    ):
        yield client


async def test_a_chat_with_an_image_is_answered() -> None:
    async with serving() as client:
        answer = await client.post("/v1/chat/completions", json={"messages": MESSAGES})

    assert answer.status_code == 200
    assert answer.json()["usage"]["prompt_tokens_details"]["image_tokens"] == 5


async def test_a_response_to_an_image_is_answered() -> None:
    async with serving() as client:
        answer = await client.post("/v1/responses", json={"input": INPUT})

    assert answer.status_code == 200
    assert answer.json()["usage"]["input_tokens"] == len("[user]") + 5


async def test_the_tokens_of_images_are_counted() -> None:
    async with serving() as client:
        answer = await client.post("/tokenize", json={"messages": MESSAGES})

    assert answer.json()["count"] == len("[user]What?") + 5


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data:image/png;base64,AAAA", "no image of a known format"),
        ("http://169.254.169.254/latest/meta-data", "allowed_media_domains"),
        ("file:///etc/passwd", "allowed_local_media_path"),
    ],
)
async def test_an_image_that_cannot_be_loaded_is_an_error_of_the_client(
    url: str, reason: str
) -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    async with serving() as client:
        answer = await client.post("/v1/chat/completions", json={"messages": messages})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages[0].content[0]"
    assert reason in answer.json()["error"]["message"]


async def test_the_limit_on_the_length_of_a_prompt_is_one_on_text() -> None:
    async with serving(ServerOptions(max_prompt_length=100)) as client:
        chat = await client.post("/v1/chat/completions", json={"messages": MESSAGES})
        response = await client.post("/v1/responses", json={"input": INPUT})

    assert (chat.status_code, response.status_code) == (200, 200)
