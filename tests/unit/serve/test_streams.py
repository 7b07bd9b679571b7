"""Streams: clients that go away, clients that read slowly, pings, and the bytes of the events."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from anyio import Event, create_task_group, fail_after, sleep_forever, wait_all_tasks_blocked
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Message

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.serve import ServerOptions, create_app
from aiomlc.serve.http.event_encoder import ChatEventEncoder, TextEventEncoder
from aiomlc.testing import FakeCore, fake_loader
from tests.e2e.waiting import wait_until
from tests.unit.serve.asgi import (
    CHAT,
    ManualRequest,
    events_of,
    http_client,
    lifespan,
    serving,
    text_of,
)

pytestmark = pytest.mark.timeout(30)
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"prompt": "a"}),
    ("/v1/responses", {"input": "a"}),
]
STREAMED = {**CHAT, "stream": True}


@pytest.mark.parametrize(("path", "fields"), REQUESTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_client_that_leaves_before_the_first_token_cancels_its_request(
    path: str, fields: dict[str, Any], stream: bool
) -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with serving(core) as (app, client):
        request = ManualRequest(app, path, {**fields, "stream": stream})
        async with create_task_group() as tasks:
            tasks.start_soon(request.run)
            await wait_all_tasks_blocked()
            assert len(core.prompts) == 1
            request.disconnect()

        assert core.cancelled == [1]
        assert b"delta" not in request.body
        core.allow(1000)
        after = await client.post("/v1/chat/completions", json=CHAT)
        metrics = (await client.get("/metrics")).text

    assert after.status_code == 200
    assert 'aiomlc_http_responses_total{status="499"} 1' in metrics or stream
    assert "aiomlc_http_requests_running 0" in metrics


@pytest.mark.parametrize(("path", "fields"), REQUESTS)
async def test_client_that_leaves_in_the_middle_cancels_its_request(
    path: str, fields: dict[str, Any]
) -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with serving(core) as (app, _):
        request = ManualRequest(app, path, {**fields, "stream": True})
        async with create_task_group() as tasks:
            core.allow(1)
            tasks.start_soon(request.run)
            await request.has_body.wait()
            request.disconnect()

    assert core.cancelled == [1]
    assert not request.is_complete


async def test_client_that_leaves_while_the_model_loads_ends_its_request() -> None:
    engine = AsyncMLCEngine(loader=_slow_loader)
    app = create_app(engine)
    request = ManualRequest(app, "/v1/chat/completions", CHAT)
    with fail_after(10):
        async with create_task_group() as tasks:
            tasks.start_soon(request.run)
            await wait_all_tasks_blocked()
            request.disconnect()

    assert request.status == 499  # For a middleware; the client is gone.


async def _slow_loader(*_: object, **__: object) -> NoReturn:
    await sleep_forever()
    raise AssertionError


async def test_server_that_reports_a_disconnect_by_an_error_cancels_the_request() -> None:
    """As servers of ASGI 2.4 do, on `send`."""
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with serving(core) as (app, _):
        request = ManualRequest(app, "/v1/chat/completions", STREAMED)

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                raise OSError("the client has gone")

        core.allow(1)
        with pytest.raises(OSError, match="gone"):
            await app(request.scope, request.receive, send)

    assert core.cancelled == [1]


async def test_tokens_for_a_slow_reader_are_merged_and_then_paused() -> None:
    reply = "".join(chr(ord("a") + number % 26) for number in range(200))
    core = FakeCore([reply])
    engine = AsyncMLCEngine(
        engine_config=EngineConfig(max_unread_tokens=50), loader=fake_loader(core)
    )
    async with engine:
        app = create_app(engine)
        request = ManualRequest(app, "/v1/chat/completions", STREAMED)
        request.reads = Event()
        async with create_task_group() as tasks:
            tasks.start_soon(request.run)
            with fail_after(10):
                await wait_until(lambda: bool(core.paused))

            size = len(request.body)
            request.reads.set()

    events = events_of(request.body.decode())
    assert size < 1000
    assert text_of(events) == reply
    assert len(events) < len(reply)


async def test_silence_is_filled_with_comments() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with serving(core, ping_interval=0.01) as (app, _):
        request = ManualRequest(app, "/v1/chat/completions", STREAMED)
        async with create_task_group() as tasks:
            tasks.start_soon(request.run)
            await request.has_body.wait()
            assert request.status == 200
            assert request.body.startswith(b": ping\n\n")
            core.allow(1000)

    assert text_of(events_of(request.body.decode())) == "Hi!"
    assert request.is_complete


async def test_failure_after_a_comment_is_an_event() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True, failures={1: "no more"})
    async with serving(core, ping_interval=0.01) as (app, _):
        request = ManualRequest(app, "/v1/chat/completions", STREAMED)
        async with create_task_group() as tasks:
            tasks.start_soon(request.run)
            await request.has_body.wait()
            core.allow(1000)

    assert events_of(request.body.decode())[0]["error"]["code"] == "request_failed"


async def test_the_error_of_a_response_continues_its_sequence_of_events() -> None:
    core = FakeCore(["Hi!"], failures={1: "no more"})
    async with serving(core) as (_, client):
        answer = await client.post("/v1/responses", json={"input": "Hello", "stream": True})

    events = events_of(answer.text)
    assert events[-1]["type"] == "error"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_client_that_never_reads_is_dropped() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with serving(core, write_timeout=0.01) as (app, _):
        request = ManualRequest(app, "/v1/chat/completions", STREAMED)
        request.reads = Event()
        core.allow(1)
        with fail_after(10):
            await request.run()

    assert core.cancelled == [1]
    assert not request.is_complete


async def test_client_that_does_not_read_a_whole_answer_is_dropped() -> None:
    async with serving(write_timeout=0.01) as (app, _):
        request = ManualRequest(app, "/v1/chat/completions", CHAT)
        request.reads = Event()
        with fail_after(10):
            await request.run()

        assert await app.drain(0)


@pytest.mark.parametrize(
    "options", [{}, {"n": 2}, {"logprobs": True}, {"stream_options": {"include_usage": True}}]
)
async def test_chunks_are_the_same_bytes_as_without_the_fast_path(
    options: dict[str, Any],
) -> None:
    core = FakeCore(['a"\\\n é😀 \x00 b'], hand_stepped=True)
    chunks: list[ChatCompletionChunk] = []
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        stream = await engine.chat.completions.create(**CHAT, **options, stream=True)
        core.allow(1)
        async for chunk in stream:
            core.allow(1)
            chunks.append(chunk)

    encode = ChatEventEncoder().encode
    encode_plainly: Any = TextEventEncoder().encode
    assert len(chunks) > 10
    assert [encode([chunk]) for chunk in chunks] == [encode_plainly([chunk]) for chunk in chunks]
    dumped = (b"data: %b\n\n" % chunk.model_dump_json().encode() for chunk in chunks)
    assert b"".join(dumped) == encode_plainly(chunks)


async def test_stream_in_a_mounted_application_needs_no_lifespan() -> None:
    engine = AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"])))
    inner = create_app(engine, ServerOptions(api_keys=("secret",)))
    app = Starlette(routes=[Mount("/llm", app=inner)])
    async with http_client(app, headers={"authorization": "Bearer secret"}) as client:
        response = await client.post("/llm/v1/chat/completions", json=STREAMED)
        models = await client.get("/llm/v1/models")
        page = await client.get("/llm/", headers={"authorization": ""})
        refused = await client.get("/llm/v1/models", headers={"authorization": ""})
        missing = await client.get("/llm/models")

    engine.terminate()
    assert text_of(events_of(response.text)) == "Hi!"
    assert models.status_code == page.status_code == 200
    assert refused.status_code == 401
    assert missing.json()["error"]["message"].endswith("did you mean /llm/v1/models?")


async def test_lifespan_opens_and_closes_only_engines_that_are_not_open() -> None:
    core, other = FakeCore(), FakeCore()
    async with AsyncMLCEngine(loader=fake_loader(core)) as opened:
        app = create_app({"a": opened, "b": AsyncMLCEngine(loader=fake_loader(other))})
        async with lifespan(app), http_client(app) as client:
            states = (await client.get("/ready")).json()["models"]

        assert states == {"a": "loaded", "b": "loaded"}
        assert other.is_closed
        assert not core.is_closed


async def test_the_first_event_is_a_part_of_its_own() -> None:
    async with serving() as (app, _):
        request = ManualRequest(app, "/v1/chat/completions", STREAMED)
        await request.run()

    assert request.parts[0].count(b"data: ") == 1
    assert b'"role":"assistant"' in request.parts[0]


async def test_a_middleware_gets_an_answer_though_the_client_has_left() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)

    async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    async with serving(core) as (app, _):
        outer = BaseHTTPMiddleware(app, dispatch=pass_on)
        request = ManualRequest(outer, "/v1/chat/completions", CHAT)
        async with create_task_group() as tasks:
            tasks.start_soon(request.run)  # It raised "No response returned".
            await wait_all_tasks_blocked()
            request.disconnect()

    assert core.cancelled == [1]
