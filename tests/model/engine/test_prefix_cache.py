"""Sequences that share pages of TVM's cache say what each says alone, and give every page back."""

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
from tests.model.tiny_models import TINY_CONFIGS

OpenTiny = Callable[..., NativeModel]
Logits = NDArray[np.float32]

TOKENS = [(7 * i * i + 3 * i) % 256 for i in range(80)]


def _alone(model: NativeModel, tokens: Sequence[int]) -> Logits:
    model.add_sequence(1000)
    logits = model.forward([(1000, tokens)])
    model.remove_sequence(1000)
    last: Logits = logits[0]
    return last


@pytest.mark.parametrize("architecture", TINY_CONFIGS)
@pytest.mark.parametrize("quantization", ["q0f32", "q4f16_1"])
def test_a_fork_at_any_position_has_the_bits_of_the_whole(
    open_tiny: OpenTiny, architecture: str, quantization: str
) -> None:
    model = open_tiny(architecture, quantization)
    free = model.free_pages()
    alone = _alone(model, TOKENS)
    model.add_sequence(0)
    model.forward([(0, TOKENS[:50])])

    for position in (1, 15, 16, 17, 32, 49, 50):
        model.fork_sequence(0, 1, position)
        np.testing.assert_array_equal(model.forward([(1, TOKENS[position:])])[0], alone)
        model.remove_sequence(1)
    last = model.forward([(0, TOKENS[50:])])[0]
    model.remove_sequence(0)

    np.testing.assert_array_equal(last, alone)
    assert model.free_pages() == free


def test_a_fork_takes_a_page_only_for_one_that_is_begun(open_tiny: OpenTiny) -> None:
    model = open_tiny("llama", "q0f32")
    model.add_sequence(0)
    model.forward([(0, TOKENS[:50])])
    free = model.free_pages()

    model.fork_sequence(0, 1, 48)
    at_the_end_of_a_page = model.free_pages()
    model.fork_sequence(0, 2, 49)
    in_a_page = model.free_pages()
    model.remove_sequence(0)
    without_the_source = model.free_pages()
    model.remove_sequence(1)
    model.remove_sequence(2)

    assert at_the_end_of_a_page == free
    assert in_a_page == free - 1
    assert without_the_source == free  # Its own last page; the other three are shared.
    assert model.free_pages() == free + 4


class _Family:
    """Sequences that fork from each other, and what each should say."""

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
        gone = self.random.choice(list(self.tokens))
        self.model.remove_sequence(gone)
        del self.tokens[gone]

    def append(self) -> tuple[list[int], Logits]:
        ids = self.random.sample(list(self.tokens), self.random.randint(1, len(self.tokens)))
        most = self.random.choice([1, 1, 20])
        rows = [
            (i, [self.random.randrange(256) for _ in range(self.random.randint(1, most))])
            for i in sorted(ids)
        ]
        logits = self.model.forward(rows)
        for sequence_id, appended in rows:
            self.tokens[sequence_id] += appended
        return sorted(ids), logits


@pytest.mark.parametrize("seed", range(3))
def test_any_family_of_forks_says_what_each_says_alone(open_tiny: OpenTiny, seed: int) -> None:
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
        expected = _alone(model, family.tokens[ids[checked]])
        np.testing.assert_array_equal(logits[checked], expected)

    while family.tokens:
        family.remove()
    assert model.free_pages() == free


# ---- The engine ----


def _asking(words: str, **options: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": words}], "max_tokens": 12, **options}


def _requests() -> list[dict[str, Any]]:
    """Requests that begin alike, greedy and seeded; each of them twice."""
    words = [("Tell me about the sea. " * 6)[: 20 * i] for i in range(1, 7)]
    greedy = [_asking(text, temperature=0) for text in words]
    seeded = [_asking(text, temperature=1.1, seed=i) for i, text in enumerate(words)]
    return [*greedy, *seeded, *greedy, *seeded]


async def _answer(engine: AsyncMLCEngine, request: dict[str, Any]) -> tuple[str, int]:
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


async def test_answers_are_the_same_with_the_cache_and_without(open_engine: OpenEngine) -> None:
    requests = _requests()
    together = [("", 0)] * len(requests)

    async def fetch(engine: AsyncMLCEngine, index: int) -> None:
        together[index] = await _answer(engine, requests[index])

    async with open_engine(prefix_cache_mode="disable") as engine:
        without = [await _answer(engine, request) for request in requests]
    # Few pages and few entries: some are evicted, some are forked from before they are.
    small = open_engine(max_total_sequence_length=640, prefix_cache_max_num_recycling_seqs=5)
    async with small as engine:
        alone = [await _answer(engine, request) for request in requests]
        async with create_task_group() as tasks:
            for index in range(len(requests)):
                tasks.start_soon(fetch, engine, index)
        statistics = engine.statistics()

    texts = [text for text, _ in without]
    assert [text for text, _ in alone] == texts
    assert [text for text, _ in together] == texts
    assert all(cached == 0 for _, cached in without)
    assert sum(cached for _, cached in alone) > 500
    assert statistics.free_pages == statistics.total_pages
    assert 0 < statistics.num_recycling <= 5
    assert statistics.prefix_cache_hits > 40


async def test_the_second_time_one_token_of_the_prompt_is_computed(
    open_engine: OpenEngine,
) -> None:
    async with open_engine() as engine:
        whole = [
            await engine.chat.completions.create(**_asking("What is it?", temperature=0))
            for _ in range(2)
        ]
        stream = await engine.chat.completions.create(
            **_asking("What is it?", temperature=0),
            stream=True,
            stream_options={"include_usage": True},
        )
        usages = [answer.usage for answer in whole] + [chunk.usage async for chunk in stream][-1:]

    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages if usage is not None]
    assert usages[0] is not None
    assert cached == [0, usages[0].prompt_tokens - 1, usages[0].prompt_tokens - 1]
