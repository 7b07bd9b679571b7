"""Tests of the mailbox between delivery and the reader of one request."""

from __future__ import annotations

from typing import Any, cast

import pytest
from anyio import CancelScope, create_task_group, wait_all_tasks_blocked
from anyio.lowlevel import current_token
from hypothesis import given
from hypothesis import strategies as st

from aiomlc.errors import EngineDeadError
from aiomlc.runtime.engine.core_protocol import Record
from aiomlc.runtime.engine.stream import Delta, Mailbox

pytestmark = pytest.mark.timeout(20)


def record(text: str, finish_reason: str | None = None) -> Record:
    return Record(1, text, tuple(map(ord, text)), finish_reason, None, 5, len(text))


async def test_read_that_is_cancelled_while_it_is_woken_loses_no_delta() -> None:
    mailbox = Mailbox()
    taken: list[Delta | None] = []
    scope = CancelScope()

    async def reader() -> None:
        with scope:
            taken.append(await mailbox.take())

    async with create_task_group() as tasks:
        tasks.start_soon(reader)
        await wait_all_tasks_blocked()
        mailbox.put(record("a"))
        scope.cancel()

    mailbox.put(record("", "stop"))
    taken.append(await mailbox.take())

    assert "".join(delta.text for delta in taken if delta) == "a"


async def test_record_after_a_cancelled_read_is_for_the_next_read() -> None:
    mailbox = Mailbox()
    async with create_task_group() as tasks:
        tasks.start_soon(mailbox.take)
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    mailbox.put(record("a"))
    delta = await mailbox.take()

    assert delta is not None
    assert delta.text == "a"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncio_task_cancellation_loses_no_delta() -> None:
    mailbox = Mailbox()
    loop = cast("Any", current_token().native_token)
    reading = loop.create_task(mailbox.take())
    await wait_all_tasks_blocked()
    mailbox.put(record("a"))
    reading.cancel()  # As `asyncio.timeout` does, after the task was woken but before it runs.
    await wait_all_tasks_blocked()

    delta = mailbox.take_nowait()

    assert reading.cancelled()
    assert delta is not None
    assert delta.text == "a"


async def test_error_is_raised_once_and_after_waiting_deltas() -> None:
    mailbox = Mailbox()
    mailbox.put(record("a"))
    mailbox.fail(EngineDeadError("dead"))
    mailbox.fail(EngineDeadError("dead twice"))

    delta = await mailbox.take()
    with pytest.raises(EngineDeadError, match=r"dead$"):
        await mailbox.take()

    assert delta is not None
    assert delta.text == "a"
    assert await mailbox.take() is None


@given(st.lists(st.tuples(st.text(), st.booleans())))
def test_merged_deltas_contain_all_records_in_order(parts: list[tuple[str, bool]]) -> None:
    mailbox = Mailbox()
    deltas = []

    for text, take in parts:
        mailbox.put(record(text))
        if take:
            deltas.append(mailbox.take_nowait())

    mailbox.put(record("", "stop"))
    deltas.append(mailbox.take_nowait())

    taken = [delta for delta in deltas if delta is not None]
    texts = "".join(text for text, _ in parts)
    assert len(taken) == len(deltas)
    assert "".join(delta.text for delta in taken) == texts
    assert [token for delta in taken for token in delta.token_ids] == list(map(ord, texts))
    assert taken[-1].finish_reason == "stop"
    assert mailbox.take_nowait() is None


async def test_merging_reader_is_woken_for_many_tokens_or_at_the_end() -> None:
    mailbox = Mailbox(2)
    mailbox.merge()
    taken: list[tuple[int, str]] = []

    async def read() -> None:
        while delta := await mailbox.take():
            taken.append((delta.choice, delta.text))

    async with create_task_group() as tasks:
        tasks.start_soon(read)
        for length in range(1, 64):
            mailbox.put(record("a" * length)._replace(text="a"), 0)

        mailbox.put(record("b", "stop"), 1)
        await wait_all_tasks_blocked()
        before = list(taken)
        mailbox.put(record("a" * 64)._replace(text="a"), 0)
        await wait_all_tasks_blocked()
        at_64_tokens = list(taken)
        mailbox.put(record("a" * 65, "stop")._replace(text="a"), 0)

    assert before == []
    assert at_64_tokens == [(0, "a" * 64), (1, "b")]
    assert taken[2:] == [(0, "a")]


async def test_merging_reader_is_woken_before_a_choice_would_be_paused_for_good() -> None:
    mailbox = Mailbox(max_unread=3)
    mailbox.merge()
    for text in ("a", "ab", "abc"):
        mailbox.put(record(text)._replace(text=text[-1]))

    delta = await mailbox.take()

    assert delta is not None
    assert delta.text == "abc"
    assert mailbox.catch_up(0)


async def test_merging_reader_gets_an_error_in_place_of_the_unread_text() -> None:
    mailbox = Mailbox()
    mailbox.merge()
    mailbox.put(record("a"))
    mailbox.fail(EngineDeadError("broken"))

    with pytest.raises(EngineDeadError):
        await mailbox.take()

    assert await mailbox.take() is None
