"""Load tests of scripted engines, in the library and through OpenAI's client."""

from __future__ import annotations

import json
import math
from functools import partial

import openai
import pytest
from typer.testing import CliRunner

from aiomlc import AiomlcError, AsyncMLCEngine
from aiomlc.cli.app import app
from aiomlc.cli.jobs.bench_load import Load, percentiles, run_load
from aiomlc.serve import openai_client
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(60)


def load(*, number: int = 5, rate: float = math.inf, concurrency: int = 8) -> Load:
    return Load(
        number=number,
        rate=rate,
        concurrency=concurrency,
        prompt_words=3,
        max_tokens=4,
        fixed_length=True,
    )


async def test_every_request_of_the_library_is_measured() -> None:
    core = FakeCore(["Hello!"])
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        create = engine.chat.completions.create
        result = await run_load(create, load(rate=1000.0), (AiomlcError,))

    assert (result.completed, result.errors) == (5, [])
    assert result.completion_tokens == 5 * 4
    assert len(result.first_token) == len(result.end_to_end) == 5
    assert all(map(float.__le__, sorted(result.first_token), sorted(result.end_to_end)))
    assert {(options.max_tokens, options.min_tokens) for options in core.options} == {(4, 4)}
    assert len({tuple(prompt) for prompt in core.prompts}) == 5


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # As the command runs.
async def test_openais_client_is_measured_in_the_same_way() -> None:
    async with (
        AsyncMLCEngine(loader=fake_loader(FakeCore(["Hello!"]))) as engine,
        openai_client(engine) as client,
    ):
        create = partial(client.chat.completions.create, model="any")
        result = await run_load(create, load(), (openai.OpenAIError,))

    assert (result.completed, result.errors) == (5, [])
    assert result.completion_tokens == 5 * 4


async def test_a_request_that_fails_is_counted_and_the_others_continue() -> None:
    core = FakeCore(["Hello!"], failures={2: "no memory"})
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        result = await run_load(engine.chat.completions.create, load(), (AiomlcError,))

    assert result.completed == 4
    (error,) = result.errors
    assert "no memory" in error
    assert result.summary()["failed"] == 1


def test_percentiles_are_of_the_nearest_rank_and_in_milliseconds() -> None:
    seconds = [number / 1000 for number in range(100, 0, -1)]

    assert percentiles(seconds) == pytest.approx({"p50": 50, "p90": 90, "p99": 99})
    assert percentiles([0.007]) == pytest.approx({"p50": 7, "p90": 7, "p99": 7})
    assert percentiles([]) == {"p50": None, "p90": None, "p99": None}


def test_arrivals_have_the_rate_and_repeat_with_the_seed() -> None:
    moments = list(load(number=4000, rate=50.0).arrivals())

    assert moments[0] == 0.0
    assert moments == sorted(moments)
    assert moments[-1] == pytest.approx(4000 / 50, rel=0.1)
    assert moments == list(load(number=4000, rate=50.0).arrivals())
    assert set(load().arrivals()) == {0.0}


def test_the_command_prints_json() -> None:
    arguments = ["bench", "mock://echo", "--number", "3", "--max-tokens", "5", "--json"]
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert (summary["completed"], summary["failed"]) == (3, 0)
    assert summary["completion_tokens_per_second"] > 0
    assert set(summary["first_token_ms"]) == {"p50", "p90", "p99"}


def test_a_server_that_is_not_there_fails_every_request() -> None:
    arguments = ["bench", "--url", "http://127.0.0.1:9/v1", "--number", "2"]
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 1
    assert "2 failed, the first by APIConnectionError" in result.stderr


@pytest.mark.parametrize(
    "url", ["localhost", "localhost:8000", "ftp://a/v1", "http://", "http://[a"]
)
def test_the_address_of_a_server_is_checked(url: str) -> None:
    result = CliRunner().invoke(app, ["bench", "--url", url])

    assert result.exit_code == 2
    assert f"--url must be like http://127.0.0.1:8000/v1, got {url!r}" in result.stderr
