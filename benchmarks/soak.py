"""Many clients that behave badly, against an engine with room for few.

    python -m benchmarks.soak --seconds 60

Now and then a row of logits is NaN, and some grammars cannot continue. Every request must end in
a defined way: with an answer, by its client's own leaving, or with an error of ours. Afterwards no
request may be left, every page must be free and the memory must be what it was. Ends with the exit
status 1 if it is not so, and prints the outcomes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import anyio
from anyio import create_task_group, fail_after, move_on_after, sleep

from aiomlc import AiomlcError, AsyncMLCEngine, CoreStatistics, EngineConfig, EngineOverloadedError
from aiomlc.testing import DEAD_END, Faults, faulty_loader, unread

_PROMPTS = (
    "Tell me a story about a fox called Rosa.",
    "What is 12 plus 30?",
    "Count from 1 to 20.",
    "Repeat: the fox and the crow met by the river. " * 8,
    "Who are you? " * 60,
)
_FORMATS: tuple[dict[str, Any] | None, ...] = (
    None,
    None,
    {"type": "json_object", "schema": {"type": "array", "items": {"type": "integer"}}},
    {"type": "grammar", "syntax": "regex", "definition": "(yes|no)( (yes|no)){2,40}"},
)
_BAD: tuple[dict[str, Any], ...] = (
    {"temperature": -1},
    {"messages": []},
    {"messages": [{"role": "user", "content": "word " * 5000}]},
    {"response_format": {"type": "grammar", "syntax": "regex", "definition": "("}},
    {"unknown": 1},
)


@dataclass(frozen=True)
class Settings:
    """What the command line asked for."""

    seconds: float
    clients: int
    seed: int
    backend: str
    mode: str
    nan_every: int | None
    allowed_growth_mb: float


@dataclass
class Outcomes:
    """How requests ended."""

    counts: Counter[str] = field(default_factory=Counter)
    tokens: int = 0


def engine_config(mode: str) -> EngineConfig:
    """Pages for eight long answers, rows for twelve, a queue for forty."""
    return EngineConfig(
        max_num_sequence=12,
        max_total_sequence_length=8 * 320,
        max_single_sequence_length=1024,
        max_queue_size=40,
        max_unread_tokens=32,
        speculative_mode="prompt_lookup" if mode == "prompt_lookup" else "disable",
    )


async def whole(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Wait for the answer."""
    answer = await engine.chat.completions.create(**_options(random))
    assert answer.usage is not None
    outcomes.tokens += answer.usage.completion_tokens
    return f"answer, {answer.choices[0].finish_reason}"


async def read_at_leisure(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Read slowly, so that the answer pauses."""
    stream = await engine.chat.completions.create(**_options(random), stream=True)
    async for _ in stream:
        outcomes.tokens += 1
        await sleep(random.random() * 0.01)

    return "stream, read slowly"


async def leave_early(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Read a little, or nothing, and go."""
    async with await engine.chat.completions.create(**_options(random), stream=True) as stream:
        for _ in range(random.randrange(6)):
            outcomes.tokens += 1
            await anext(stream, None)

    return "stream, left early"


async def never_read(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Hold a stream for a while, perhaps until it pauses, and drop it."""
    async with unread(engine, **_options(random)):
        await sleep(random.random() * random.choice((0.2, 2.0)))

    return "stream, never read"


async def cancelled(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Be cancelled at any moment."""
    with move_on_after(random.random() * 0.05) as scope:
        await engine.chat.completions.create(**_options(random))

    return "cancelled" if scope.cancelled_caught else "answer, before it was cancelled"


async def aborted(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Be ended by somebody else."""
    request_id = f"{random.getrandbits(64)}"
    async with create_task_group() as tasks:
        tasks.start_soon(_abort_soon, engine, request_id, random.random() * 0.02)
        await engine.chat.completions.create(**_options(random), request_id=request_id)

    return "answer, before it was aborted"


async def bad(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Ask for what cannot be."""
    await engine.chat.completions.create(**{**_options(random), **random.choice(_BAD)})
    raise AssertionError("a bad request was answered")


async def dead_end(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Ask for what begins well and cannot continue."""
    options = _options(random) | {"response_format": DEAD_END, "ignore_eos": False}
    answer = await engine.chat.completions.create(**options)
    if any(choice.finish_reason == "stop" for choice in answer.choices):
        raise AssertionError("an answer came to an end that cannot be reached")

    return "answer, cut before the dead end"


_Behaviour = Callable[[AsyncMLCEngine, Random, Outcomes], Awaitable[str]]
_BEHAVIOURS: tuple[_Behaviour, ...] = (
    whole,
    whole,
    whole,
    read_at_leisure,
    leave_early,
    never_read,
    cancelled,
    aborted,
    bad,
    dead_end,
)


def _options(random: Random) -> dict[str, Any]:
    options: dict[str, Any] = {
        "messages": [{"role": "user", "content": random.choice(_PROMPTS)}],
        "temperature": random.choice((0.0, 0.7, 1.5)),
        "max_tokens": random.choice((1, 5, 40, 250)),
        "seed": random.getrandbits(32),
        "n": random.choice((1, 1, 1, 3)),
        "priority": random.randrange(-1, 2),
        "response_format": random.choice(_FORMATS),
        "ignore_eos": random.random() < 0.2,
        "logprobs": random.random() < 0.1,
    }
    if random.random() < 0.2:
        limit = random.choice(("timeout", "first_token_timeout", "inter_token_timeout"))
        options[limit] = random.choice((0.001, 0.02, 5.0))

    return options


async def _abort_soon(engine: AsyncMLCEngine, request_id: str, seconds: float) -> None:
    await sleep(seconds)
    await engine.abort(request_id)


async def _client(engine: AsyncMLCEngine, seed: int, until: float, outcomes: Outcomes) -> None:
    random = Random(seed)
    while anyio.current_time() < until:
        behave = random.choice(_BEHAVIOURS)
        try:
            outcome = await behave(engine, random, outcomes)
        except EngineOverloadedError:
            outcome = "EngineOverloadedError"
            await sleep(0.01 * random.random())
        except AiomlcError as error:
            outcome = type(error).__name__
        except BaseExceptionGroup as group:  # Of `aborted`, whose request had a task beside it.
            rest = group.split(AiomlcError)[1]
            if rest is not None:
                raise

            outcome = type(group.exceptions[0]).__name__

        outcomes.counts[outcome] += 1


async def soak(settings: Settings) -> list[str]:
    """Run the clients; returns what was not as it has to be."""
    seconds, clients, seed = settings.seconds, settings.clients, settings.seed
    outcomes = Outcomes()
    loader = faulty_loader(Faults(nan_every=settings.nan_every))
    async with AsyncMLCEngine(engine_config=engine_config(settings.mode), loader=loader) as engine:
        # What is made once and kept, such as compiled grammars, is there before it is measured.
        await _run(engine, clients, seed, min(2.0, seconds), Outcomes())
        before = _resident_mb()
        await _run(engine, clients, seed + clients, seconds, outcomes)
        left = await _wait_until_idle(engine)
        after = _resident_mb()

    for outcome, count in sorted(outcomes.counts.items()):
        print(f"{count:8d}  {outcome}")

    total = sum(outcomes.counts.values())
    print(f"{total:8d}  requests, {outcomes.tokens} tokens told, {seconds:.0f} s")
    print(f"resident memory {before:.0f} MB before, {after:.0f} MB after")
    violations = []
    if (left.num_running, left.num_waiting, left.num_paused) != (0, 0, 0):
        violations.append(f"sequences are left: {left}")

    if left.free_pages != left.total_pages:
        violations.append(f"{left.free_pages} of {left.total_pages} pages are free")

    if after > before + settings.allowed_growth_mb:
        violations.append("the memory grew")

    return violations


async def _run(
    engine: AsyncMLCEngine, clients: int, seed: int, seconds: float, outcomes: Outcomes
) -> None:
    # Who hangs is cancelled, which is an error: an answer takes a second at most.
    with fail_after(seconds + 30):
        until = anyio.current_time() + seconds
        async with create_task_group() as tasks:
            for number in range(clients):
                tasks.start_soon(_client, engine, seed + number, until, outcomes)


async def _wait_until_idle(engine: AsyncMLCEngine) -> CoreStatistics:
    with move_on_after(10):
        while True:
            statistics = engine.statistics()
            if statistics.num_running + statistics.num_waiting + statistics.num_paused == 0:
                break

            await sleep(0.01)

    return engine.statistics()


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--mode", choices=("disable", "prompt_lookup"), default="disable")
    parser.add_argument("--nan-every", type=int, default=500, help="steps; the row of one is NaN")
    parser.add_argument(
        "--allowed-growth-mb",
        type=float,
        default=64,
        help="of resident memory, for what allocators and caches keep",
    )
    settings = Settings(**vars(parser.parse_args()))
    print(f"seed {settings.seed}")
    violations = anyio.run(soak, settings, backend=settings.backend)
    for violation in violations:
        print(violation, file=sys.stderr)

    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
