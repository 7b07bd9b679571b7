"""The ingress over replicas in this process, of which some are lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import final

import httpx2
import pytest
from anyio import create_task_group, fail_after, wait_all_tasks_blocked
from starlette.types import ASGIApp, Receive, Scope, Send

from aiomlc import AsyncMLCEngine, EngineOverloadedError, ReplicaLostError, RequestFailedError
from aiomlc.errors import AiomlcError, EngineError
from aiomlc.ray.client import ReplicaClient
from aiomlc.ray.exchange import AppExchange, AppRequest, ResponseBatch
from aiomlc.ray.failures import to_library_error
from aiomlc.ray.ingress import Ingress
from aiomlc.serve import ServerOptions, create_app
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.testing import FakeCore, fake_loader
from tests.unit.serve.asgi import CHAT, ManualRequest, events_of, http_client, lifespan, text_of

pytestmark = pytest.mark.timeout(30)
STREAMED = {**CHAT, "stream": True}
STARTED = [(b"content-type", b"text/event-stream; charset=utf-8")]
PING = ResponseBatch(200, STARTED, b": ping\n\n", is_last=False)
OUTPUT = ResponseBatch(200, STARTED, b'data: {"choices": []}\n\n', is_last=False)


class RayActorError(Exception):
    """Named as Ray's."""


class ActorDiedError(RayActorError):
    """Named as Ray's."""


class BackPressureError(Exception):
    """Named as Ray's."""


class RayServeException(Exception):  # noqa: N818 - named as Ray's.
    """Named as Ray's."""


class RayTaskError(Exception):
    """Named as Ray's."""


class LostReplicaTaskError(RayTaskError, ActorDiedError):
    """What Ray derives from the class of the cause."""


@final
class Call:
    """A call of a replica: its generator, and whether it was cancelled."""

    def __init__(self, batches: AsyncGenerator[ResponseBatch]) -> None:
        self._batches = batches
        self.is_cancelled: bool = False

    def __aiter__(self) -> AsyncIterator[ResponseBatch]:
        return self._batches

    def cancel(self) -> None:
        self.is_cancelled = True


@final
class Replicas:
    """Replicas of an application; the first calls yield the given batches and are then lost."""

    def __init__(
        self,
        app: ASGIApp,
        lost: Sequence[Sequence[ResponseBatch]] = (),
        error: Exception | None = None,
    ) -> None:
        self._app = app
        self._lost = list(lost)
        self._error = error or ActorDiedError("killed")
        self.calls: list[Call] = []
        self.exchanges: list[AppExchange] = []

    def send(self, request: AppRequest, /) -> Call:
        batches = self._lose(self._lost.pop(0)) if self._lost else self._answer(request)
        self.calls.append(Call(batches))
        return self.calls[-1]

    async def _lose(self, batches: Sequence[ResponseBatch]) -> AsyncGenerator[ResponseBatch]:
        for batch in batches:
            yield batch

        raise self._error

    async def _answer(self, request: AppRequest) -> AsyncGenerator[ResponseBatch]:
        exchange = AppExchange(self._app, request, interval=0)
        self.exchanges.append(exchange)
        exchange.start()
        is_last = False
        while not is_last:
            batch = await exchange.receive_batch()
            is_last = batch.is_last
            yield batch


@asynccontextmanager
async def serving(
    core: FakeCore | None = None,
    lost: Sequence[Sequence[ResponseBatch]] = (),
    error: Exception | None = None,
) -> AsyncIterator[tuple[Replicas, Ingress, httpx2.AsyncClient]]:
    options = ServerOptions(max_body_size=1000)
    async with AsyncMLCEngine(loader=fake_loader(core or FakeCore(["Hello!"]))) as engine:
        replicas = Replicas(create_app({"fake": engine}, options), lost, error)
        ingress = Ingress(ReplicaClient(replicas.send, max_retries=2), options)
        async with http_client(ingress) as client:
            yield replicas, ingress, client


async def test_answers_are_those_of_a_replica() -> None:
    async with serving() as (_, ingress, client), lifespan(ingress):
        whole = await client.post("/v1/chat/completions", json=CHAT)
        streamed = await client.post("/v1/chat/completions", json=STREAMED)
        models = await client.get("/v1/models")
        invalid = await client.post("/v1/chat/completions", json={**CHAT, "top_p": 7})
        missing = await client.get("/other")

    assert whole.json()["choices"][0]["message"]["content"] == "Hello!"
    assert text_of(events_of(streamed.text)) == "Hello!"
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert [model["id"] for model in models.json()["data"]] == ["fake"]
    assert (invalid.status_code, invalid.json()["error"]["param"]) == (400, "top_p")
    assert missing.status_code == 404


async def test_bodies_are_limited_before_they_are_sent_to_a_replica() -> None:
    async with serving() as (replicas, _, client):
        large = await client.post("/v1/completions", json={"prompt": "a" * 1000})
        broken = await client.post(
            "/v1/completions", content=b"{", headers={"content-type": "application/json"}
        )

    assert large.status_code == 413
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_json")
    assert len(replicas.calls) == 1


@pytest.mark.parametrize("batches", [[], [PING]])
@pytest.mark.parametrize("num_lost", [1, 2])
async def test_a_request_without_output_is_sent_again(
    batches: list[ResponseBatch], num_lost: int
) -> None:
    async with serving(lost=[batches] * num_lost) as (replicas, _, client):
        response = await client.post("/v1/chat/completions", json=STREAMED)

    assert response.status_code == 200
    assert text_of(events_of(response.text)) == "Hello!"
    assert [call.is_cancelled for call in replicas.calls] == [True] * num_lost + [False]


async def test_a_stream_with_output_ends_with_an_error() -> None:
    async with serving(lost=[[OUTPUT]]) as (replicas, _, client):
        response = await client.post("/v1/chat/completions", json=STREAMED)

    *_, error, end = events_of(response.text)
    assert error["error"]["code"] == "replica_lost"
    assert "the rest of the output" in error["error"]["message"]
    assert end == "[DONE]"
    assert len(replicas.calls) == 1


async def test_a_response_without_events_is_broken_off() -> None:
    part = ResponseBatch(200, [(b"content-type", b"application/json")], b"{", is_last=False)
    async with serving(lost=[[part]]) as (_, ingress, _client):
        request = ManualRequest(ingress, "/v1/embeddings", {"input": "a"})
        with pytest.raises(HTTPError, match="the rest of the output"):
            await request.run()

    assert (request.status, request.is_complete) == (200, False)


async def test_the_number_of_attempts_is_limited() -> None:
    async with serving(lost=[[]] * 3) as (replicas, _, client):
        response = await client.post("/v1/chat/completions", json=STREAMED)

    assert (response.status_code, response.json()["error"]["code"]) == (503, "replica_lost")
    assert len(replicas.calls) == 3


async def test_a_second_attempt_that_is_rejected_ends_a_stream_of_comments() -> None:
    async with serving(lost=[[PING]]) as (_, _ingress, client):
        response = await client.post("/v1/chat/completions", json={**STREAMED, "top_p": 7})

    error, end = events_of(response.text)
    assert (response.status_code, error["error"]["param"], end) == (200, "top_p", "[DONE]")


@pytest.mark.parametrize(
    ("error", "status"),
    [(BackPressureError(), 429), (RayServeException("gone"), 503), (RayTaskError("bug"), 500)],
)
async def test_failures_of_ray_have_a_status(error: Exception, status: int) -> None:
    async with serving(lost=[[]], error=error) as (_, _ingress, client):
        response = await client.post("/v1/chat/completions", json=CHAT)

    assert response.status_code == status
    assert response.json()["error"]["message"]


async def test_a_client_that_leaves_cancels_the_call() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with serving(core) as (replicas, ingress, _):
        request = ManualRequest(ingress, "/v1/chat/completions", STREAMED)
        with fail_after(10):
            async with create_task_group() as tasks:
                tasks.start_soon(request.run)
                await wait_all_tasks_blocked()
                assert len(core.prompts) == 1
                request.disconnect()

            replicas.exchanges[0].disconnect()  # As the replica's generator does.
            await wait_all_tasks_blocked()

        assert replicas.calls[0].is_cancelled
        assert core.cancelled == [1]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ActorDiedError(), ReplicaLostError),
        (LostReplicaTaskError(), ReplicaLostError),
        (BackPressureError(), EngineOverloadedError),
        (RayTaskError("a\nb"), RequestFailedError),
        (RayServeException(), EngineError),
        (RequestFailedError("a"), RequestFailedError),
    ],
)
def test_errors_of_ray_become_those_of_the_library(
    error: Exception, expected: type[AiomlcError]
) -> None:
    assert type(to_library_error(error, has_output=True)) is expected
    assert to_library_error(ValueError("a"), has_output=True) is None


async def test_an_application_that_fails_raises_in_the_reader() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise LookupError("a bug")

    async def end(scope: Scope, receive: Receive, send: Send) -> None:
        return

    scope = {"type": "http", "path": "/", "headers": []}
    for app, expected in ((fail, LookupError), (end, RuntimeError)):
        exchange = AppExchange(app, AppRequest.from_scope(scope, b""), interval=0)
        exchange.start()
        with fail_after(10), pytest.raises(expected):
            await exchange.receive_batch()


async def test_a_failure_after_the_response_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail_late(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a"})
        raise LookupError("a bug")

    scope = {"type": "http", "path": "/", "headers": []}
    exchange = AppExchange(fail_late, AppRequest.from_scope(scope, b""), interval=0)
    exchange.start()
    with fail_after(10):
        assert (await exchange.receive_batch()).is_last

    await wait_all_tasks_blocked()
    assert "LookupError: a bug" in caplog.text


async def test_a_body_that_is_nested_deeply_is_answered_by_a_replica() -> None:
    body = b'{"messages": %b%b}' % (b"[" * 400, b"]" * 400)
    async with serving() as (_, ingress, client), lifespan(ingress):
        answer = await client.post(
            "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
        )

    assert answer.status_code == 400


async def test_an_application_waits_while_its_response_is_not_taken() -> None:
    sent = 0

    async def send_much(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for sent in range(100):  # noqa: B007 - read by the test.
            await send({"type": "http.response.body", "body": b"a" * 2**14, "more_body": True})

        await send({"type": "http.response.body"})

    scope = {"type": "http", "path": "/", "headers": []}
    exchange = AppExchange(send_much, AppRequest.from_scope(scope, b""), interval=0)
    exchange.start()
    await wait_all_tasks_blocked()
    assert sent == 4

    size, is_last = 0, False
    with fail_after(10):
        while not is_last:
            batch = await exchange.receive_batch()
            size += len(batch.body)
            is_last = batch.is_last
            await wait_all_tasks_blocked()

    assert size == 100 * 2**14
