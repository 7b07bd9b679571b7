"""Clients of the soak test: their requests and their behavior."""

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
_INVALID_FIELDS: tuple[dict[str, Any], ...] = (
    {"temperature": -1},
    {"messages": []},
    {"messages": [{"role": "user", "content": "word " * 5000}]},
    {"response_format": {"type": "grammar", "syntax": "regex", "definition": "("}},
    {"unknown": 1},
)


@dataclass
class Outcomes:
    """Counts of how requests ended."""

    counts: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)  #: On the engine, such as a reset.
    tokens: int = 0


async def complete(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Wait for the complete response."""
    completion = await engine.chat.completions.create(**_options(random))
    assert completion.usage is not None
    outcomes.tokens += completion.usage.completion_tokens
    return f"completion, {completion.choices[0].finish_reason}"


async def read_slowly(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Read slowly, so that the sequence is paused."""
    stream = await engine.chat.completions.create(**_options(random), stream=True)
    async for _ in stream:
        outcomes.tokens += 1
        await sleep(random.random() * 0.01)

    return "stream, read slowly"


async def leave_early(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Read at most five chunks, then close the stream."""
    async with await engine.chat.completions.create(**_options(random), stream=True) as stream:
        for _ in range(random.randrange(6)):
            outcomes.tokens += 1
            await anext(stream, None)

    return "stream, left early"


async def never_read(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Hold an unread stream for a while, possibly until it is paused, and close it."""
    async with unread(engine, **_options(random)):
        await sleep(random.random() * random.choice((0.2, 2.0)))

    return "stream, never read"


async def cancel(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Cancel the request at a random time."""
    with move_on_after(random.random() * 0.05) as scope:
        await engine.chat.completions.create(**_options(random))

    return "cancelled" if scope.cancelled_caught else "completion, before it was cancelled"


async def abort(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Abort the request from another task at a random time."""
    request_id = f"{random.getrandbits(64)}"
    async with create_task_group() as tasks:
        tasks.start_soon(_abort_after, engine, request_id, random.random() * 0.02)
        await engine.chat.completions.create(**_options(random), request_id=request_id)

    return "completion, before it was aborted"


async def send_invalid(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Send an invalid request."""
    await engine.chat.completions.create(**{**_options(random), **random.choice(_INVALID_FIELDS)})
    raise AssertionError("an invalid request was served")


async def use_dead_end_grammar(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Use a grammar that at some point allows no further token."""
    options = _options(random) | {"response_format": DEAD_END, "ignore_eos": False}
    completion = await engine.chat.completions.create(**options)
    if any(choice.finish_reason == "stop" for choice in completion.choices):
        raise AssertionError("a completion stopped although its grammar has no end")

    return "completion, cut before the dead end"


async def pin_prefix(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Pin a prefix, send up to three requests that start with it, wait, and unpin it."""
    rules = {"role": "system", "content": _RULES[: random.choice((80, 200, 300))]}
    with await engine.pin_prefix([rules]):
        for _ in range(random.randrange(4)):
            options = _options(random)
            options["messages"] = [rules, *options["messages"]]
            await engine.chat.completions.create(**options)

        await sleep(random.random() * 0.05)

    return "completions, with a pinned prefix"


async def process_logits(engine: AsyncMLCEngine, random: Random, outcomes: Outcomes) -> str:
    """Use a logits processor, which sometimes raises an exception."""
    calls_left = random.choice((3, 10, 1000, 1000))

    def process(token_ids: Sequence[int], logits: NDArray[np.float32]) -> None:
        nonlocal calls_left
        calls_left -= 1
        if calls_left == 0:
            raise ValueError("a deliberate fault")

        logits[token_ids[-1]] -= 5.0

    options = _options(random) | {"logits_processors": [process]}
    options["max_tokens"] = min(40, options["max_tokens"])
    await engine.chat.completions.create(**options)
    return "completion, with a logits processor"


_Behavior = Callable[[AsyncMLCEngine, Random, Outcomes], Awaitable[str]]
_BEHAVIORS: tuple[_Behavior, ...] = (
    complete,
    complete,
    complete,
    read_slowly,
    leave_early,
    never_read,
    cancel,
    abort,
    send_invalid,
    use_dead_end_grammar,
    pin_prefix,
    process_logits,
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


async def _abort_after(engine: AsyncMLCEngine, request_id: str, seconds: float) -> None:
    await sleep(seconds)
    await engine.abort(request_id)


async def run_client(
    engine: AsyncMLCEngine, seed: int, deadline: float, outcomes: Outcomes
) -> None:
    """Send requests of random behaviors until `deadline`, and count how they end."""
    random = Random(seed)
    while anyio.current_time() < deadline:
        behave = random.choice(_BEHAVIORS)
        try:
            outcome = await behave(engine, random, outcomes)
        except (EngineOverloadedError, EngineDrainingError, EngineClosedError) as error:
            outcome = type(error).__name__
            await sleep(0.01 * random.random())
        except AiomlcError as error:
            outcome = type(error).__name__
        except BaseExceptionGroup as group:  # From the task group of `abort`.
            if group.split(AiomlcError)[1] is not None:
                raise

            outcome = type(group.exceptions[0]).__name__

        outcomes.counts[outcome] += 1
