"""The clients of the soak: what they ask for, and how they behave."""

from __future__ import annotations

__all__ = ("Outcomes", "run_client")

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio
import numpy as np
from anyio import create_task_group, move_on_after, sleep
from numpy.typing import NDArray

from aiomlc import (
    AiomlcError,
    AsyncMLCEngine,
    EngineClosedError,
    EngineDrainingError,
    EngineOverloadedError,
)
from aiomlc.testing import DEAD_END, unread

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
_RULES = "You are a storyteller. The fox and the crow met by the river, and both were hungry. " * 4
_BAD: tuple[dict[str, Any], ...] = (
    {"temperature": -1},
    {"messages": []},
    {"messages": [{"role": "user", "content": "word " * 5000}]},
    {"response_format": {"type": "grammar", "syntax": "regex", "definition": "("}},
    {"unknown": 1},
)


@dataclass
class Outcomes:
    """How requests ended."""

    counts: Counter[str] = field(default_factory=Counter)
    doings: Counter[str] = field(default_factory=Counter)  #: What was done to the engine.
    tokens: int = 0


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


async def pinned(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Keep a beginning, ask some things that begin so, and let it go, or forget to for a while."""
    rules = {"role": "system", "content": _RULES[: random.choice((80, 200, 300))]}
    with await engine.pin_prefix([rules]):
        for _ in range(random.randrange(4)):
            options = _options(random)
            options["messages"] = [rules, *options["messages"]]
            await engine.chat.completions.create(**options)

        await sleep(random.random() * 0.05)

    return "answers, of a pinned beginning"


async def processed(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Change the logits, and sometimes fail at it."""
    calls_left = random.choice((3, 10, 1000, 1000))

    def process(token_ids: Sequence[int], logits: NDArray[np.float32]) -> None:
        nonlocal calls_left
        calls_left -= 1
        if calls_left == 0:
            raise ValueError("a fault on purpose")

        logits[token_ids[-1]] -= 5.0

    options = _options(random) | {"logits_processors": [process]}
    options["max_tokens"] = min(40, options["max_tokens"])
    await engine.chat.completions.create(**options)
    return "answer, of changed logits"


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
    pinned,
    processed,
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


async def run_client(engine: AsyncMLCEngine, seed: int, until: float, outcomes: Outcomes) -> None:
    random = Random(seed)
    while anyio.current_time() < until:
        behave = random.choice(_BEHAVIOURS)
        try:
            outcome = await behave(engine, random, outcomes)
        except (EngineOverloadedError, EngineDrainingError, EngineClosedError) as error:
            outcome = type(error).__name__
            await sleep(0.01 * random.random())
        except AiomlcError as error:
            outcome = type(error).__name__
        except BaseExceptionGroup as group:  # Of `aborted`, whose request had a task beside it.
            rest = group.split(AiomlcError)[1]
            if rest is not None:
                raise

            outcome = type(group.exceptions[0]).__name__

        outcomes.counts[outcome] += 1
