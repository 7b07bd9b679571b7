"""Requests that share steps: their output is that of each one alone."""

from __future__ import annotations

__all__ = ("FEATURES", "OpenEngine", "check_output_of_each_alone", "mixed_requests")

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, ChatCompletion
from aiomlc.runtime.engine.core_protocol import CoreStatistics

#: Opens an engine with these fields of its configuration.
OpenEngine = Callable[..., AsyncMLCEngine]

# Prompts of 30 to 130 tokens with a common prefix and repetitions, so that drafts are accepted.
_PROMPTS = [("The fox and the crow. " * 6)[: 20 * i] for i in range(1, 7)]
_MANY_CHOICES = {"n": 8, "temperature": 1.1, "seed": 3, "ignore_eos": True}

#: Parametrizes a test by the fields `options` of a configuration.
FEATURES = pytest.mark.parametrize(
    "options",
    [
        {},
        {"step_token_budget": 7, "max_num_sequence": 4},
        {"max_total_sequence_length": 512, "prefix_cache_mode": "disable"},
        {"kv_cache_dtype": "int8", "max_total_sequence_length": 512},
    ],
    ids=["batched", "small steps", "preempted", "int8 cache"],
)


def mixed_requests(max_tokens: int, *, with_choices: bool = False) -> list[dict[str, Any]]:
    """Return greedy and sampled requests.

    With choices, one request has eight of 80 tokens. They begin together, so that a cache of 512
    tokens preempts them however slow the event loop is.
    """
    options: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 1.1, "seed": 5}]
    requests = [
        {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens} | option
        for text, option in product(_PROMPTS, options)
    ]
    return (
        [*requests, requests[0] | _MANY_CHOICES | {"max_tokens": 80}] if with_choices else requests
    )


async def check_output_of_each_alone(
    open_engine: OpenEngine, requests: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> CoreStatistics:
    """Check requests at the same time in an engine with `options`; return its statistics."""
    together: list[list[str | None]] = [[] for _ in requests]

    async def fetch(engine: AsyncMLCEngine, index: int) -> None:
        together[index] = _texts(await engine.chat.completions.create(**requests[index]))

    only = {"kv_cache_dtype": options.get("kv_cache_dtype", "auto")}
    async with open_engine(prefix_cache_mode="disable", max_num_sequence=1, **only) as engine:
        alone = [_texts(await engine.chat.completions.create(**request)) for request in requests]
    async with open_engine(**options) as engine:
        async with create_task_group() as tasks:
            for index in range(len(requests)):
                tasks.start_soon(fetch, engine, index)
        statistics = engine.statistics()

    assert together == alone
    assert statistics.free_pages == statistics.total_pages
    return statistics


def _texts(response: ChatCompletion) -> list[str | None]:
    return [choice.message.content for choice in response.choices]
