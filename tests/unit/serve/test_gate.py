"""What is checked before an endpoint runs: keys, hosts, limits, origins, request ids, draining."""

from __future__ import annotations

import httpx2
import pytest
from anyio import create_task_group, wait_all_tasks_blocked

from aiomlc.testing import FakeCore
from tests.unit.serve.asgi import CHAT, ManualRequest, events_of, serving

pytestmark = pytest.mark.timeout(30)
PATH = "/v1/chat/completions"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "missing_api_key"),
        ({"authorization": "Basic secret"}, "missing_api_key"),
        ({"authorization": "Bearer "}, "missing_api_key"),
        (bearer("wrong"), "invalid_api_key"),
        (bearer("secre"), "invalid_api_key"),
        (bearer("secret2"), "invalid_api_key"),
    ],
)
async def test_requests_without_a_valid_key_are_401(headers: dict[str, str], code: str) -> None:
    async with serving(api_keys=("secret", "other")) as (_, client):
        for path in (PATH, "/tokenize", "/v1/embeddings"):
            response = await client.post(path, json=CHAT, headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == code
            assert response.headers["www-authenticate"] == "Bearer"

        for path in ("/v1/models", "/metrics", "/version", "/nothing"):
            assert (await client.get(path, headers=headers)).status_code == 401

        for path in ("/", "/health", "/ready", "/openapi.json"):
            assert (await client.get(path, headers=headers)).status_code == 200


@pytest.mark.parametrize("key", ["secret", "other"])
async def test_each_key_is_accepted(key: str) -> None:
    async with serving(api_keys=("secret", "other")) as (_, client):
        response = await client.post(PATH, json=CHAT, headers=bearer(key))

    assert response.status_code == 200


async def test_keys_are_in_no_repr_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with serving(api_keys=("secret",)) as (app, client):
        await client.post(PATH, json=CHAT, headers=bearer("secret"))
        await client.post(PATH, json=CHAT, headers=bearer("wrong-key"))
        text = repr(app._context.options)

    assert "secret" not in text
    assert "secret" not in caplog.text
    assert "wrong-key" not in caplog.text


async def test_requests_beyond_the_limit_of_a_key_are_429() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with serving(core, api_keys=("a", "b"), max_requests_per_key=1) as (_, client):
        async with create_task_group() as tasks:
            tasks.start_soon(lambda: client.post(PATH, json=CHAT, headers=bearer("a")))
            await wait_all_tasks_blocked()
            second = await client.post(PATH, json=CHAT, headers=bearer("a"))
            core.allow(1000)
            other = await client.post(PATH, json=CHAT, headers=bearer("b"))

        later = await client.post(PATH, json=CHAT, headers=bearer("a"))

    assert second.status_code == 429
    assert second.headers["retry-after"]
    assert other.status_code == later.status_code == 200


async def test_requests_beyond_the_limit_of_the_server_are_429_but_probes_pass() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with serving(core, max_requests=1) as (_, client), create_task_group() as tasks:
        tasks.start_soon(lambda: client.post(PATH, json=CHAT))
        await wait_all_tasks_blocked()
        assert (await client.post(PATH, json=CHAT)).status_code == 429
        assert (await client.get("/health")).status_code == 200
        core.allow(1000)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.x:80"])
async def test_unknown_hosts_are_421(host: str) -> None:
    async with serving(allowed_hosts=("localhost", "[::1]")) as (_, client):
        response = await client.get("/health", headers={"host": host})

    assert response.status_code == 421
    assert response.json()["error"]["code"] == "unknown_host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "[::1]", "[::1]:8000"])
async def test_own_hosts_are_accepted(host: str) -> None:
    async with serving(allowed_hosts=("localhost", "[::1]")) as (_, client):
        assert (await client.get("/health", headers={"host": host})).status_code == 200


async def preflight(client: httpx2.AsyncClient) -> httpx2.Response:
    headers = {
        "origin": "https://page.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type, authorization",
    }
    return await client.options(PATH, headers=headers)


async def test_pages_of_other_origins_may_not_use_the_server() -> None:
    async with serving() as (_, client):
        asked = await preflight(client)
        answer = await client.get("/v1/models", headers={"origin": "https://page.example"})

    assert asked.status_code == 405
    assert "access-control-allow-origin" not in asked.headers
    assert "access-control-allow-origin" not in answer.headers


async def test_pages_of_allowed_origins_may_use_the_server() -> None:
    origins = ("https://page.example",)
    async with serving(allow_origins=origins, api_keys=("secret",)) as (_, client):
        asked = await preflight(client)
        refused = await client.get("/v1/models", headers={"origin": origins[0]})
        other = await client.get("/health", headers={"origin": "https://other.example"})

    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == origins[0]
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == origins[0]
    assert "x-request-id" in refused.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in other.headers


async def test_request_id_is_returned_if_it_is_harmless() -> None:
    async with serving() as (_, client):
        given = await client.get("/health", headers={"x-request-id": "abc-1.2"})
        harmful = await client.get("/health", headers={"x-request-id": "a b" * 99})
        first, second = await client.get("/health"), await client.get("/health")

    assert given.headers["x-request-id"] == "abc-1.2"
    ids = {response.headers["x-request-id"] for response in (harmful, first, second)}
    assert len(ids) == 3
    assert "a b" * 99 not in ids


async def test_a_draining_server_finishes_its_requests_and_rejects_new_ones() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with serving(core) as (app, client):
        drained: list[bool] = []

        async def drain() -> None:
            drained.append(await app.drain(30))

        async with create_task_group() as tasks:
            core.allow(1)
            request = ManualRequest(app, PATH, {**CHAT, "stream": True})
            tasks.start_soon(request.run)
            await request.has_body.wait()
            tasks.start_soon(drain)
            await wait_all_tasks_blocked()
            rejected = await client.post(PATH, json=CHAT)
            ready, health = await client.get("/ready"), await client.get("/health")
            assert not drained
            core.allow(1000)

    assert rejected.status_code == ready.status_code == 503
    assert rejected.headers["retry-after"]
    assert rejected.json()["error"]["code"] == ready.json()["status"] == "draining"
    assert health.status_code == 200
    assert drained == [True]
    assert events_of(request.body.decode())[-1] == "[DONE]"


async def test_draining_aborts_what_remains_after_the_limit() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with serving(core) as (app, _), create_task_group() as tasks:
        core.allow(1)
        request = ManualRequest(app, PATH, {**CHAT, "stream": True})
        tasks.start_soon(request.run)
        await request.has_body.wait()
        assert not await app.drain(0.01)

    assert events_of(request.body.decode())[-2]["error"]["code"] == "request_aborted"
