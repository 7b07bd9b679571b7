"""`JSONService`: JSON requests, and one outbox for the chunks of all requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anyio import create_task_group, fail_after, wait_all_tasks_blocked

from aiomlc import EngineClosedError, EngineConfig
from aiomlc.api.json_ffi import service as json_service
from aiomlc.api.json_ffi.service import JSONService
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
HELLO = json.dumps({"messages": [{"role": "user", "content": "Hello"}]})


async def take_chunks(service: JSONService) -> list[dict[str, Any]]:
    """Take chunks up to and including the usage of a request."""
    chunks: list[dict[str, Any]] = []
    while not chunks or chunks[-1]["usage"] is None:
        chunks += json.loads(await service.take())

    return chunks


def text_of(chunks: list[dict[str, Any]]) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def test_take_returns_lists_of_chunks_and_an_empty_string_at_the_end() -> None:
    with fail_after(10):
        async with JSONService(loader=fake_loader(replies=["Hi!"])) as service:
            await service.load(EngineConfig())
            assert await service.submit(HELLO, "mine")
            chunks = await take_chunks(service)

        assert await service.take() == ""

    assert text_of(chunks) == "Hi!"
    assert {chunk["id"] for chunk in chunks} == {"mine"}


@pytest.mark.parametrize("json_id", ["", "mine"])
async def test_an_empty_id_is_replaced_by_that_of_the_request_or_a_new_one(json_id: str) -> None:
    request = json.dumps({**json.loads(HELLO), **({"request_id": json_id} if json_id else {})})
    async with JSONService(loader=fake_loader()) as service:
        await service.load(EngineConfig())
        assert await service.submit(request, "")
        ids = {chunk["id"] for chunk in await take_chunks(service)}

    assert ids == {json_id} if json_id else all(name.startswith("chatcmpl-") for name in ids)


async def test_a_full_outbox_pauses_requests_until_chunks_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_service, "_MAX_OUTBOX_CHUNKS", 3)
    core = FakeCore(["x" * 5000])
    with fail_after(10):
        async with JSONService(loader=fake_loader(core)) as service:
            await service.load(EngineConfig(max_unread_tokens=10))
            await service.submit(HELLO, "mine")
            while not core.paused:
                await wait_all_tasks_blocked()

            assert text_of(await take_chunks(service)) == "x" * 5000


async def test_leaving_the_scope_ends_requests_and_keeps_their_chunks() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    with fail_after(10):
        async with JSONService(loader=fake_loader(core)) as service:
            await service.load(EngineConfig())
            await service.submit(HELLO, "mine")

        chunks = json.loads(await service.take())
        assert await service.take() == ""

    assert [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]] == ["error"]
    assert chunks[-1]["usage"] is not None
    assert core.is_closed
    assert await service.submit(HELLO, "late") is False
    assert "terminated" in service.last_error


async def test_loading_another_model_ends_the_requests_of_the_previous_one() -> None:
    cores = [FakeCore(["x" * 100], hand_stepped=True), FakeCore(["Hi!"])]
    loaders = [fake_loader(core) for core in cores]

    async def load(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        return await loaders.pop(0)(*arguments, **options)

    with fail_after(10):
        async with JSONService(loader=load) as service:
            await service.load(EngineConfig())
            await service.submit(HELLO, "first")
            await service.load(EngineConfig())
            first = await take_chunks(service)
            await service.submit(HELLO, "second")
            second = await take_chunks(service)

    assert cores[0].is_closed
    assert first[0]["choices"][0]["finish_reason"] == "error"
    assert text_of(second) == "Hi!"


async def test_stop_ends_a_load_in_progress() -> None:
    errors: list[EngineClosedError] = []

    with fail_after(10):
        async with JSONService(loader=fake_loader()) as service, create_task_group() as tasks:

            async def load() -> None:
                with pytest.raises(EngineClosedError) as caught:
                    await service.load(EngineConfig())

                errors.append(caught.value)

            tasks.start_soon(load)
            await service.stop()

    assert len(errors) == 1
