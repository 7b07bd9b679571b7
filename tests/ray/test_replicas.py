"""Two replicas of the bundled model on Ray Serve."""

from __future__ import annotations

import re
import subprocess
import sys

import httpx2
import pytest
from anyio import create_task_group, fail_after, sleep, to_thread
from ray import serve

from aiomlc.ray import RayOptions
from benchmarks.ray_routing import (
    deploy,
    kill_replica,
    question,
    replica_processes,
    update_under_load,
)
from tests.e2e.programs import ROOT, wrong_sums
from tests.unit.serve.asgi import events_of, text_of

pytestmark = pytest.mark.timeout(600)
CHAT = "/v1/chat/completions"


async def test_requests_with_one_system_prompt_find_it_in_the_cache(
    client: httpx2.AsyncClient,
) -> None:
    await deploy(RayOptions(num_replicas=2))
    cached: list[bool] = []
    for prompt in range(6):
        for number in range(4):
            answer = (await client.post(CHAT, json=question(prompt, number))).json()
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 150)

    assert cached == [False, True, True, True] * 6


async def test_answers_are_those_of_one_server(client: httpx2.AsyncClient) -> None:
    await deploy(RayOptions(num_replicas=2))
    whole = (await client.post(CHAT, json=question(1, 5))).json()
    streamed = await client.post(CHAT, json=question(1, 5, stream=True))
    invalid = await client.post(CHAT, json=question(1, 5, top_p=7))
    models = (await client.get("/v1/models")).json()

    assert whole["choices"][0]["message"]["content"] == text_of(events_of(streamed.text)) != ""
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert (invalid.status_code, invalid.json()["error"]["param"]) == (400, "top_p")
    assert [model["id"] for model in models["data"]] == ["pebble"]


async def test_a_killed_replica_loses_only_streams_with_output(client: httpx2.AsyncClient) -> None:
    outcomes, _ = await kill_replica(client, 24)

    assert set(outcomes) <= {"complete", "replica_lost"}  # Not `replica_lost without output`.
    assert outcomes.total() == 24


async def test_a_rolling_update_loses_no_request(client: httpx2.AsyncClient) -> None:
    outcomes = await update_under_load(client, num_clients=4, num_prompts=4)

    assert set(outcomes) == {"status 200"}


async def test_a_client_that_leaves_cancels_its_request(client: httpx2.AsyncClient) -> None:
    await deploy(RayOptions())
    body = question(1, 1, stream=True, max_tokens=1200)
    body["debug_config"] = {"ignore_eos": True}
    async with client.stream("POST", CHAT, json=body) as response:
        await anext(response.aiter_lines())

    aborted = re.compile(r'^aiomlc_requests_finished_total{.*finish_reason="abort".*} 1$', re.M)
    with fail_after(120):
        while not aborted.search((await client.get("/metrics")).text):  # noqa: ASYNC110
            await sleep(0.1)


async def test_a_queue_adds_a_replica(client: httpx2.AsyncClient) -> None:
    await to_thread.run_sync(serve.delete, "default")  # With the replicas of other tests.
    await deploy(RayOptions(max_replicas=2, target_requests=2, upscale_delay=0))
    assert len(replica_processes()) == 1

    async def read(number: int) -> None:
        while True:
            await client.post(CHAT, json=question(number, number, max_tokens=200))

    with fail_after(300):
        async with create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(read, number)

            while len(replica_processes()) < 2:  # noqa: ASYNC110 - Ray has no event for it.
                await sleep(0.2)

            tasks.cancel_scope.cancel()


def test_the_example_answers() -> None:
    result = subprocess.run(
        [sys.executable, "examples/ray_app.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )

    assert result.stdout.count(" + 7 = ") == 8
    assert wrong_sums(result.stdout) == []
