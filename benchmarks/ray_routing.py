"""Several engines on Ray Serve: hit rates of routings, a killed replica, and a rolling update.

    make ray                                             # makes the environment
    build/ray/bin/python -m benchmarks.ray_routing       # or --parts routing

`routing` sends a load of several system prompts, in a random order, to one engine, to two replicas
with Ray Serve's default routing, and to two with prefix-aware routing, and prints the fraction of
the prompt tokens that came from the prefix caches. `kill` ends one of two replicas by SIGKILL while
streams run. `update` deploys another configuration while clients send requests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import anyio
import httpx2
import ray
from anyio import create_task_group, to_thread
from ray import serve

from aiomlc import EngineConfig
from aiomlc.ray import RayOptions, build_app
from aiomlc.serve import ServerOptions

_CHAT = "/v1/chat/completions"
_MARK = "AIOMLC_BENCHMARK_RUN"
_TOPICS = ("foxes", "the weather", "rivers", "trains", "bread", "the moon", "chess", "gardens")
_STYLE = "Answer in one short sentence. Be friendly, do not repeat the question, and be exact. "


def system_prompt(number: int) -> str:
    """Return one of the system prompts, which differ from the first word on."""
    return f"{number} is your number and {_TOPICS[number % 8]} are your topic. " + _STYLE * 6


def question(prompt: int, number: int, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the body of a request with a system prompt."""
    user = {"role": "user", "content": f"What is {number} plus {number % 7}?"}
    messages = [{"role": "system", "content": system_prompt(prompt)}, user]
    return {"messages": messages, "temperature": 0, "max_tokens": 12, **fields}


async def run_limited(
    work: list[dict[str, Any]], limit: int, send: Callable[[dict[str, Any]], Awaitable[None]]
) -> None:
    """Send all bodies, `limit` at a time."""
    waiting = iter(work)

    async def run() -> None:
        for body in waiting:
            await send(body)

    async with create_task_group() as tasks:
        for _ in range(limit):
            tasks.start_soon(run)


async def hit_rate(client: httpx2.AsyncClient, arguments: argparse.Namespace) -> float:
    """Return the fraction of prompt tokens from the prefix caches."""
    work = [question(i % arguments.prompts, i) for i in range(arguments.requests)]
    random.Random(5).shuffle(work)
    tokens: Counter[str] = Counter()

    async def send(body: dict[str, Any]) -> None:
        usage = (await client.post(_CHAT, json=body)).raise_for_status().json()["usage"]
        tokens["prompt"] += usage["prompt_tokens"]
        tokens["cached"] += usage["prompt_tokens_details"]["cached_tokens"]

    await run_limited(work, arguments.clients, send)
    return tokens["cached"] / tokens["prompt"]


async def measure_routing(client: httpx2.AsyncClient, arguments: argparse.Namespace) -> None:
    """Print the hit rates."""
    variants = {
        "one engine": RayOptions(),
        "two replicas, default routing": RayOptions(num_replicas=2, routing="balanced"),
        "two replicas, prefix routing": RayOptions(num_replicas=2),
    }
    print(f"{arguments.requests} requests, {arguments.prompts} system prompts")
    for name, options in variants.items():
        await deploy(options)
        rate = await hit_rate(client, arguments)
        print(f"{name}: {rate:.1%} of the prompt tokens from the prefix cache", flush=True)
        await to_thread.run_sync(serve.delete, "default")


async def stream_outcome(
    client: httpx2.AsyncClient, body: dict[str, Any], has_output: Callable[[], None]
) -> str:
    """Read a stream; return `complete`, the code of its error, or what else happened."""
    async with client.stream("POST", _CHAT, json=body) as response:
        if response.status_code != 200:
            await response.aread()
            return f"status {response.status_code}: {response.text}"

        async for line in response.aiter_lines():
            data = line.removeprefix("data: ")
            if data == "[DONE]":
                return "complete"

            if data.startswith("{"):
                error = json.loads(data).get("error")
                if error:
                    return str(error["code"])

                has_output()

    return "cut off"


async def kill_replica(client: httpx2.AsyncClient, num_streams: int) -> tuple[Counter[str], int]:
    """End one of two replicas by SIGKILL while streams run and others wait.

    Returns:
        The outcomes of the streams, and how many had output when the replica was killed.
    """
    options = RayOptions(num_replicas=2, max_ongoing_requests=16)
    await deploy(options, EngineConfig(max_num_sequence=4))
    outcomes: Counter[str] = Counter()
    begun: set[int] = set()
    enough = anyio.Event()

    async def run(number: int) -> None:
        body = question(number, number, stream=True, max_tokens=400)
        body["debug_config"] = {"ignore_eos": True}

        def has_output() -> None:
            begun.add(number)
            if len(begun) >= 6:
                enough.set()

        outcome = await stream_outcome(client, body, has_output)
        if outcome == "replica_lost" and number not in begun:
            outcome = "replica_lost without output"

        outcomes[outcome] += 1

    async with create_task_group() as tasks:
        for number in range(num_streams):
            tasks.start_soon(run, number)

        await enough.wait()
        os.kill(replica_processes()[0], signal.SIGKILL)
        at_kill = len(begun)

    await to_thread.run_sync(serve.delete, "default")
    return outcomes, at_kill


async def measure_kill(client: httpx2.AsyncClient, arguments: argparse.Namespace) -> None:
    """Print what happened to streams, of which some wait, when a replica is killed."""
    outcomes, at_kill = await kill_replica(client, arguments.streams)
    print(f"{outcomes.total()} streams, {at_kill} with output when one of 2 replicas was killed:")
    for outcome, count in outcomes.most_common():
        print(f"  {count} {outcome}")


async def update_under_load(
    client: httpx2.AsyncClient, num_clients: int, num_prompts: int
) -> Counter[str]:
    """Replace both replicas while clients send requests; return the requests by outcome."""
    await deploy(RayOptions(num_replicas=2), EngineConfig(max_num_sequence=8))
    before = set(replica_processes())
    outcomes: Counter[str] = Counter()
    is_updating = True

    async def ask(number: int) -> None:
        while is_updating:
            number += num_clients
            body = question(number % num_prompts, number)
            try:
                response = await client.post(_CHAT, json=body)
                outcomes[f"status {response.status_code}"] += 1
            except httpx2.HTTPError as error:
                outcomes[f"{type(error).__name__}: {error}"] += 1

    async with create_task_group() as tasks:
        for number in range(num_clients):
            tasks.start_soon(ask, number)

        await deploy(RayOptions(num_replicas=2), EngineConfig(max_num_sequence=16))
        await wait_ended(before)
        is_updating = False

    await to_thread.run_sync(serve.delete, "default")
    return outcomes


async def measure_update(client: httpx2.AsyncClient, arguments: argparse.Namespace) -> None:
    """Print how many requests fail while both replicas are replaced."""
    start = monotonic()
    outcomes = await update_under_load(client, arguments.clients, arguments.prompts)
    print(f"{outcomes.total()} requests during a rolling update, in {monotonic() - start:.0f} s:")
    for outcome, count in outcomes.most_common():
        print(f"  {count} {outcome}")


async def deploy(options: RayOptions, config: EngineConfig | None = None) -> None:
    """Deploy the bundled model, and wait until it is ready."""
    application = build_app(
        engine_config=config, options=options, server_options=ServerOptions(enable_debug=True)
    )
    await to_thread.run_sync(serve.run, application)


async def wait_ended(processes: set[int]) -> None:
    """Wait until none of the replicas is left."""
    while processes & set(replica_processes()):  # noqa: ASYNC110 - Ray has no event for it.
        await anyio.sleep(0.2)


def replica_processes() -> list[int]:
    """Return the process ids of this run's replicas."""
    mark = f"{_MARK}={os.environ[_MARK]}".encode()
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            is_replica = b"ServeReplica:default:Replica" in (directory / "cmdline").read_bytes()
            if is_replica and mark in (directory / "environ").read_bytes():
                found.append(int(directory.name))
        except OSError:  # It has ended.
            continue

    return sorted(found)


@contextmanager
def running_serve(port: int) -> Iterator[None]:
    """Run Ray Serve on this computer, at a port."""
    os.environ[_MARK] = uuid4().hex  # The processes inherit it.
    # Ray's default of 15 lets replicas starve beside anything else that runs.
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        serve.start(http_options={"port": port})
        yield
        serve.shutdown()
    finally:
        ray.shutdown()


PARTS = {"routing": measure_routing, "kill": measure_kill, "update": measure_update}


async def main(arguments: argparse.Namespace) -> None:
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{arguments.port}", timeout=600, limits=limits
    ) as client:
        for name in arguments.parts:
            await PARTS[name](client, arguments)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--prompts", type=int, default=16, help="system prompts")
    parser.add_argument("--requests", type=int, default=192, help="requests of each routing")
    parser.add_argument("--clients", type=int, default=8, help="concurrent requests")
    parser.add_argument("--streams", type=int, default=48, help="streams when a replica is killed")
    parser.add_argument("--port", type=int, default=8000, help="the port of Ray Serve")
    parsed = parser.parse_args()
    with running_serve(parsed.port):
        anyio.run(main, parsed)
