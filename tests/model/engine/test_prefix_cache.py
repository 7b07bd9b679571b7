"""Sequences that share KV cache pages have the output of a solo run, and free every page."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import create_task_group
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.runtime.native.model import NativeModel
from tests.model.tiny_models import FORKED_ANYWHERE

OpenTiny = Callable[..., NativeModel]
Logits = NDArray[np.float32]

TOKENS = [(7 * i * i + 3 * i) % 256 for i in range(80)]


def _solo_logits(model: NativeModel, tokens: Sequence[int]) -> Logits:
    """Return the last logits of a sequence that is prefilled alone."""
    model.add_sequence(1000)
    logits = model.forward([(1000, tokens)])
    model.remove_sequence(1000)
    last: Logits = logits[0]
    return last


@pytest.mark.parametrize("architecture", FORKED_ANYWHERE)
@pytest.mark.parametrize("quantization", ["q0f32", "q4f16_1"])
@pytest.mark.sampled(24)
def test_fork_at_any_position_is_bit_identical_to_a_solo_run(
    open_tiny: OpenTiny, architecture: str, quantization: str
) -> None:
    model = open_tiny(architecture, quantization)
    free = model.free_pages()
    expected = _solo_logits(model, TOKENS)
    model.add_sequence(0)
    model.forward([(0, TOKENS[:50])])

    for position in (1, 15, 16, 17, 32, 49, 50):
        model.fork_sequence(0, 1, position)
        np.testing.assert_array_equal(model.forward([(1, TOKENS[position:])])[0], expected)
        model.remove_sequence(1)
    last = model.forward([(0, TOKENS[50:])])[0]
    model.remove_sequence(0)

    np.testing.assert_array_equal(last, expected)
    assert model.free_pages() == free


def test_fork_copies_a_page_only_if_it_is_partial(open_tiny: OpenTiny) -> None:
    model = open_tiny("llama", "q0f32")
    model.add_sequence(0)
    model.forward([(0, TOKENS[:50])])
    free = model.free_pages()

    model.fork_sequence(0, 1, 48)
    after_fork_at_page_boundary = model.free_pages()
    model.fork_sequence(0, 2, 49)
    after_fork_inside_a_page = model.free_pages()
    model.remove_sequence(0)
    after_removing_the_source = model.free_pages()
    model.remove_sequence(1)
    model.remove_sequence(2)

    assert after_fork_at_page_boundary == free
    assert after_fork_inside_a_page == free - 1
    assert after_removing_the_source == free  # Only its last page is not shared.
    assert model.free_pages() == free + 4


class _Family:
    """Sequences that fork from each other, with the tokens of each."""

    def __init__(self, model: NativeModel, seed: int) -> None:
        self.model = model
        self.random = random.Random(seed)
        self.tokens: dict[int, list[int]] = {}
        self._next_id = 0

    def fork(self) -> None:
        child, self._next_id = self._next_id, self._next_id + 1
        if not self.tokens:
            self.model.add_sequence(child)
            self.tokens[child] = []
            return

        parent = self.random.choice(list(self.tokens))
        length = len(self.tokens[parent])
        position = self.random.choice([length, length // 16 * 16, self.random.randint(0, length)])
        if position == 0:
            self.model.add_sequence(child)
        else:
            self.model.fork_sequence(parent, child, position)
        self.tokens[child] = self.tokens[parent][:position]

    def remove(self) -> None:
        removed = self.random.choice(list(self.tokens))
        self.model.remove_sequence(removed)
        del self.tokens[removed]

    def append(self) -> tuple[list[int], Logits]:
        ids = self.random.sample(list(self.tokens), self.random.randint(1, len(self.tokens)))
        max_count = self.random.choice([1, 1, 20])
        rows = [
            (i, [self.random.randrange(256) for _ in range(self.random.randint(1, max_count))])
            for i in sorted(ids)
        ]
        logits = self.model.forward(rows)
        for sequence_id, appended in rows:
            self.tokens[sequence_id] += appended
        return sorted(ids), logits


@pytest.mark.parametrize("seed", range(3))
def test_random_forks_are_bit_identical_to_solo_runs(open_tiny: OpenTiny, seed: int) -> None:
    model = open_tiny("qwen3", "q4f16_1")
    free = model.free_pages()
    family = _Family(model, seed)
    for _ in range(150):
        if len(family.tokens) < 2 or (len(family.tokens) < 10 and family.random.random() < 0.3):
            family.fork()
        if len(family.tokens) > 2 and family.random.random() < 0.25:
            family.remove()
        ids, logits = family.append()
        checked = family.random.randrange(len(ids))
        expected = _solo_logits(model, family.tokens[ids[checked]])
        np.testing.assert_array_equal(logits[checked], expected)

    while family.tokens:
        family.remove()
    assert model.free_pages() == free


# ---- The engine ----


def _request(content: str, **options: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 12, **options}


def _requests() -> list[dict[str, Any]]:
    """Return requests with a common prefix, greedy and seeded, each of them twice."""
    contents = [("Tell me about the sea. " * 6)[: 20 * i] for i in range(1, 7)]
    greedy = [_request(text, temperature=0) for text in contents]
    seeded = [_request(text, temperature=1.1, seed=i) for i, text in enumerate(contents)]
    return [*greedy, *seeded, *greedy, *seeded]


async def _complete(engine: AsyncMLCEngine, request: dict[str, Any]) -> tuple[str, int]:
    """Return the text and the cached prompt tokens of a completion."""
    completion = await engine.chat.completions.create(**request)
    assert completion.usage is not None
    cached = completion.usage.prompt_tokens_details.cached_tokens
    return completion.choices[0].message.content or "", cached


@pytest.fixture
def open_engine(
    model_cache: Path, tiny_directory: Callable[[str], Path]
) -> Callable[..., AsyncMLCEngine]:
    directory = tiny_directory("llama")
    return lambda **options: AsyncMLCEngine(
        directory, engine_config=EngineConfig(quantization="q4f16_1", num_threads=2, **options)
    )


OpenEngine = Callable[..., AsyncMLCEngine]


async def test_output_is_the_same_with_and_without_the_prefix_cache(
    open_engine: OpenEngine,
) -> None:
    requests = _requests()
    batched = [("", 0)] * len(requests)

    async def complete(engine: AsyncMLCEngine, index: int) -> None:
        batched[index] = await _complete(engine, requests[index])

    async with open_engine(prefix_cache_mode="disable") as engine:
        without = [await _complete(engine, request) for request in requests]
    # With few pages and entries, some entries are evicted, some of them after a fork.
    small = open_engine(max_total_sequence_length=640, prefix_cache_max_num_recycling_seqs=5)
    async with small as engine:
        sequential = [await _complete(engine, request) for request in requests]
        async with create_task_group() as tasks:
            for index in range(len(requests)):
                tasks.start_soon(complete, engine, index)
        statistics = engine.statistics()

    texts = [text for text, _ in without]
    assert [text for text, _ in sequential] == texts
    assert [text for text, _ in batched] == texts
    assert all(cached == 0 for _, cached in without)
    assert sum(cached for _, cached in sequential) > 500
    assert statistics.free_pages == statistics.total_pages
    assert 0 < statistics.num_recycling <= 5
    assert statistics.prefix_cache_hits > 40


async def test_repeated_prompt_computes_a_single_prompt_token(
    open_engine: OpenEngine,
) -> None:
    async with open_engine() as engine:
        completions = [
            await engine.chat.completions.create(**_request("What is it?", temperature=0))
            for _ in range(2)
        ]
        stream = await engine.chat.completions.create(
            **_request("What is it?", temperature=0),
            stream=True,
            stream_options={"include_usage": True},
        )
        usages = [completion.usage for completion in completions]
        usages += [chunk.usage async for chunk in stream][-1:]

    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages if usage is not None]
    assert usages[0] is not None
    assert cached == [0, usages[0].prompt_tokens - 1, usages[0].prompt_tokens - 1]
