"""Batches with a scripted engine, on asyncio and trio."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from openai.types.shared import ErrorObject

from aiomlc import AsyncMLCEngine, BadRequestError, EngineDeadError
from aiomlc.batch import BatchProgress, BatchSummary, run_batch
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader
from tests.e2e.waiting import wait_until

pytestmark = pytest.mark.timeout(30)

CHAT = "/v1/chat/completions"


def line(custom_id: str, url: str = CHAT, **body: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON.
    """A request, by default a chat."""
    if url == CHAT:
        body.setdefault("messages", [{"role": "user", "content": custom_id}])

    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def write(path: Path, lines: Sequence[object]) -> Path:
    """Write lines: as they are if they are strings, else as JSON."""
    texts = (text if isinstance(text, str) else json.dumps(text) for text in lines)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def answers(path: Path) -> dict[str, dict[str, Any]]:
    """The lines of an output by their ids, which must be different."""
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    assert all(text.keys() == {"id", "custom_id", "response", "error"} for text in lines)
    assert len({text["id"] for text in lines}) == len(lines)
    by_id = {text["custom_id"]: text for text in lines}
    assert len(by_id) == len(lines)
    return by_id


def fake(core: FakeCore | FakeEncoder | None = None) -> AsyncMLCEngine:
    """An engine that answers "Hi!"."""
    return AsyncMLCEngine(loader=fake_loader(core or FakeCore(["Hi!"])))


async def test_every_request_is_answered_in_openais_format(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in.jsonl",
        [
            line("chat", model="fake"),
            line("text", "/v1/completions", model="fake", prompt="a"),
            line("vectors", "/v1/embeddings", model="encoder", input="a"),
            line("several", model="fake", n=3),
        ],
    )
    engines = {"fake": fake(), "encoder": fake(FakeEncoder())}
    summary = await run_batch(engines, source, tmp_path / "out.jsonl")

    lines = answers(tmp_path / "out.jsonl")
    bodies = {name: text["response"]["body"] for name, text in lines.items()}
    chat = ChatCompletion.model_validate(bodies["chat"], strict=True)
    assert chat.choices[0].message.content == "Hi!"
    assert Completion.model_validate(bodies["text"]).choices[0].text == "Hi!"
    assert CreateEmbeddingResponse.model_validate(bodies["vectors"]).data[0].embedding
    assert len(ChatCompletion.model_validate(bodies["several"]).choices) == 3
    assert all(text["error"] is None for text in lines.values())
    assert all(text["response"]["status_code"] == 200 for text in lines.values())
    assert len({text["response"]["request_id"] for text in lines.values()}) == 4
    assert summary == BatchSummary(4, 4, 0, 0, ())


async def test_requests_run_together_up_to_the_limit(tmp_path: Path) -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    source = write(tmp_path / "in.jsonl", [line(str(number)) for number in range(9)])
    done: list[int] = []
    async with fake(core) as engine, create_task_group() as tasks:

        async def run() -> None:
            await run_batch(
                engine,
                source,
                tmp_path / "out.jsonl",
                max_in_flight=4,
                on_progress=lambda progress: done.append(progress.done),
            )

        tasks.start_soon(run)
        await wait_until(lambda: len(core.prompts) == 4)
        assert done == [0]
        core.allow(1000)

    assert len(core.prompts) == len(answers(tmp_path / "out.jsonl")) == 9
    assert done == list(range(10))


async def test_a_bad_request_gets_an_error_and_the_others_their_answers(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in.jsonl",
        [
            line("good"),
            line("good"),
            line("good"),
            line("url", "/v1/responses"),
            {"custom_id": "missing", "method": "POST", "url": CHAT},
            line("field", temperature=-1),
            line("stream", stream=True),
            line("embedding", "/v1/embeddings", input="a"),
            "",
            "no JSON",
            '{"method": "POST"}',
            line("last"),
        ],
    )
    target = tmp_path / "out.jsonl"
    summary = await run_batch(fake(), source, target)

    lines = [json.loads(text) for text in target.read_text().splitlines()]
    failed = [text for text in lines if text["error"]]
    assert sorted((text["custom_id"], text["error"]["code"]) for text in failed) == [
        ("good", "duplicate_custom_id"),
        ("good", "duplicate_custom_id"),
        ("missing", "missing_required_parameter"),
        ("url", "invalid_url"),
    ]
    responses = {text["custom_id"]: text["response"] for text in lines if text["response"]}
    statuses = {name: response["status_code"] for name, response in responses.items()}
    assert statuses == {"good": 200, "last": 200, "field": 400, "stream": 400, "embedding": 400}
    for name, param in (("field", "temperature"), ("stream", "stream"), ("embedding", "model")):
        error = ErrorObject.model_validate(responses[name]["body"]["error"])
        assert (error.type, error.param) == ("invalid_request_error", param)

    assert (summary.total, summary.written, summary.failed) == (9, 9, 7)
    assert [(item.number, summary.num_invalid) for item in summary.invalid_lines] == [
        (10, 2),
        (11, 2),
    ]

    before = target.read_bytes()
    again = await run_batch(fake(), source, target)
    assert target.read_bytes() == before
    assert (again.total, again.written, again.failed, again.num_invalid) == (9, 0, 7, 2)


async def test_a_batch_that_was_cut_off_anywhere_is_completed(tmp_path: Path) -> None:
    requests = [line(str(number)) for number in range(3)]
    source = write(tmp_path / "in.jsonl", [*requests, line("1"), line("2", "/no")])
    target = tmp_path / "out.jsonl"
    async with fake() as engine:
        await run_batch(engine, source, target)
        whole = target.read_bytes()
        for end in range(0, len(whole), 131):
            target.write_bytes(whole[:end])
            summary = await run_batch(engine, source, target)

            texts = target.read_bytes()
            assert texts.startswith(whole[: whole.rfind(b"\n", 0, end) + 1])
            lines = [json.loads(text) for text in texts.splitlines()]
            counted = sorted((text["custom_id"], bool(text["error"])) for text in lines)
            expected = [("0", False), ("1", False), ("1", True), ("2", False), ("2", True)]
            assert counted == expected
            assert summary.total == summary.written + whole[:end].count(b"\n") == 5


async def test_a_cancelled_batch_ends_its_requests_and_can_be_continued(tmp_path: Path) -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    source = write(tmp_path / "in.jsonl", [line(str(number)) for number in range(20)])
    target = tmp_path / "out.jsonl"
    async with fake(core) as engine:
        async with create_task_group() as tasks:

            def look(progress: BatchProgress) -> None:
                core.allow(100)
                if progress.done >= 7:
                    tasks.cancel_scope.cancel()

            await run_batch(engine, source, target, max_in_flight=3, on_progress=look)

        kept = target.read_bytes()
        assert 7 <= kept.count(b"\n") < 20
        summary = await run_batch(engine, source, target, on_progress=lambda _: core.allow(100))

    assert target.read_bytes().startswith(kept)
    assert set(answers(target)) == {str(number) for number in range(20)}
    assert summary.written == 20 - kept.count(b"\n")


async def test_an_engine_that_dies_leaves_the_rest_to_the_next_run(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [line(str(number)) for number in range(9)])
    target = tmp_path / "out.jsonl"
    with pytest.raises(EngineDeadError):
        await run_batch(fake(FakeCore(["Hi!"], dies_at_step=6)), source, target, max_in_flight=2)

    kept = target.read_bytes()
    assert 0 < kept.count(b"\n") < 9
    assert b'"error":null' in kept
    await run_batch(fake(), source, target)
    assert target.read_bytes().startswith(kept)
    assert len(answers(target)) == 9


async def test_a_full_queue_delays_requests(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [line(str(number)) for number in range(9)])
    target = tmp_path / "out.jsonl"
    summary = await run_batch(fake(FakeCore(["Hi!"], max_live=2)), source, target)

    assert summary.failed == 0
    assert len(answers(target)) == 9


async def test_a_request_that_never_fits_in_the_queue_fails_alone(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [line("large", n=3), line("small")])
    target = tmp_path / "out.jsonl"
    # Long enough that no sequence ends while the next one is submitted.
    await run_batch(fake(FakeCore(["Hi!" * 1000], max_live=2)), source, target)

    statuses = {name: text["response"]["status_code"] for name, text in answers(target).items()}
    assert statuses == {"large": 429, "small": 200}


async def test_the_output_of_another_input_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    await run_batch(fake(), write(tmp_path / "a.jsonl", [line("a")]), target)
    before = target.read_bytes()

    other = write(tmp_path / "b.jsonl", [line("b"), line("c", "/no")])
    with pytest.raises(BadRequestError, match="belongs to another input"):
        await run_batch(fake(), other, target)

    assert target.read_bytes() == before


async def test_requests_may_be_added_to_an_answered_input(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    await run_batch(fake(), write(source, [line("a")]), target)
    summary = await run_batch(fake(), write(source, [line("b"), line("a")]), target)

    assert (summary.total, summary.written) == (2, 1)
    assert set(answers(target)) == {"a", "b"}


async def test_the_input_is_not_the_output(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [line("a")])
    with pytest.raises(BadRequestError, match="another file"):
        await run_batch(fake(), source, source)

    assert json.loads(source.read_text()) == line("a")


@pytest.mark.parametrize("number", [0, -1, True, 1.5])
async def test_max_in_flight_is_a_positive_integer(tmp_path: Path, number: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError, match="max_in_flight"):
        await run_batch(fake(), tmp_path / "in", tmp_path / "out", max_in_flight=number)


async def test_a_finished_batch_opens_no_model(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", [line("a")]), tmp_path / "out.jsonl"
    await run_batch(fake(), source, target)

    async def load(*_: object, **__: object) -> Any:  # noqa: ANN401
        raise AssertionError("the model was opened")

    summary = await run_batch(AsyncMLCEngine(loader=load), source, target)
    assert summary.written == 0


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
async def test_the_input_is_a_regular_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "in.jsonl")
    output = tmp_path / "out.jsonl"

    with pytest.raises(BadRequestError, match="the input must be a regular file"):
        await run_batch("mock://echo", tmp_path / "in.jsonl", output)

    assert not output.exists()
