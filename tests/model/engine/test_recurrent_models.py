"""Engines of models with recurrent layers: what is shared, undone and moved changes no token."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import CancelScope, fail_after, lowlevel

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, ModelLoadError
from aiomlc.runtime.native.model import NativeModel
from aiomlc.runtime.native.recurrent_slots import CHECKPOINT_INTERVAL, slots_of
from tests.model.engine_answers import OpenEngine, chat_request, complete, complete_all

OpenTiny = Callable[..., NativeModel]
Directory = Callable[[str], Path]

FAMILIES = ("lfm2", "lfm2_moe", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
TOKENS = [(7 * i * i + 3 * i) % 256 for i in range(300)]
PREFIX = "The sea is deep and the sky is high. " * 6


def families(test: Callable[..., Any]) -> Callable[..., Any]:
    """Run a test for each family, and usually for one of them."""
    sampled: Callable[..., Any] = pytest.mark.sampled(family=("qwen3_5_text",))(test)
    parametrized: Callable[..., Any] = pytest.mark.parametrize("family", FAMILIES)(sampled)
    return parametrized


@pytest.fixture
def open_engine(model_cache: Path, tiny_directory: Directory) -> OpenEngine:
    def open_one(family: str, quantization: str = "q0f32", **options: Any) -> AsyncMLCEngine:  # noqa: ANN401
        config = EngineConfig(quantization=quantization, num_threads=2, **options)
        return AsyncMLCEngine(tiny_directory(family), engine_config=config)

    return open_one


def _request(content: str, max_tokens: int = 12, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    greedy: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
    return chat_request(content, max_tokens, **(options or greedy))


async def _texts_alone(
    open_engine: OpenEngine, family: str, requests: Sequence[dict[str, Any]]
) -> list[list[str]]:
    async with open_engine(family, prefix_cache_mode="disable") as engine:
        return [(await complete(engine, request))[0] for request in requests]


def _check_all_free(engine: AsyncMLCEngine) -> None:
    statistics = engine.statistics()
    assert statistics.free_pages == statistics.total_pages
    assert statistics.free_slots == statistics.total_slots > 0


# ---- States ----


@families
def test_forks_at_checkpoints_change_no_bit(open_tiny: OpenTiny, family: str) -> None:
    model = open_tiny(family, "q0f32")
    model.add_sequence(0)
    expected = model.forward([(0, TOKENS[:200])])[0]
    model.remove_sequence(0)
    model.add_sequence(0)
    model.forward([(0, TOKENS[:150])])

    for position in (128, 150):  # The last multiples of the interval, and the end.
        model.fork_sequence(0, 1, position)
        model.forward([(1, TOKENS[position:180]), (0, [5])])
        actual = model.forward([(1, TOKENS[180:200])])[0]
        model.remove_sequence(1)
        np.testing.assert_array_equal(actual, expected)
        model.remove_sequence(0)
        model.add_sequence(0)
        model.forward([(0, TOKENS[:150])])
    model.remove_sequence(0)


@families
def test_exported_states_go_on_without_a_changed_bit(open_tiny: OpenTiny, family: str) -> None:
    model = open_tiny(family, "q0f32")
    model.add_sequence(0)
    model.forward([(0, TOKENS[:100])])
    data = model.export_tokens(0, 0, 100)
    expected = model.forward([(0, TOKENS[100:120])])[0]

    model.add_sequence(1)
    model.import_tokens(1, data)
    actual = model.forward([(1, TOKENS[100:120])])[0]

    np.testing.assert_array_equal(actual, expected)
    for sequence_id in (0, 1):
        model.remove_sequence(sequence_id)


# ---- The engine ----


@families
async def test_batches_and_the_prefix_cache_change_no_token(
    open_engine: OpenEngine, family: str
) -> None:
    requests = [_request(PREFIX + f"{i} is a number." * i, max_tokens=20) for i in range(8)]
    alone = await _texts_alone(open_engine, family, requests)

    async with open_engine(family) as engine:
        one_by_one = [await complete(engine, request) for request in requests]
        _check_all_free(engine)
    async with open_engine(family) as engine:
        batched = await complete_all(engine, requests)
        _check_all_free(engine)

    assert [texts for texts, _ in one_by_one] == alone
    assert [texts for texts, _ in batched] == alone
    assert sum(cached for _, cached in one_by_one) > 0


@families
async def test_a_shared_prompt_is_computed_once_for_ten_requests(
    open_engine: OpenEngine, family: str
) -> None:
    shared = "x" * 400
    requests = [_request(shared + f" {i}", max_tokens=4) for i in range(10)]
    async with open_engine(family, max_single_sequence_length=512) as engine:
        cached = [(await complete(engine, request))[1] for request in requests]

    # `user: ` and the shared text, but for the part of a block.
    assert min(cached[1:]) > len(shared) - CHECKPOINT_INTERVAL


@families
async def test_a_follow_up_computes_only_what_is_new(open_engine: OpenEngine, family: str) -> None:
    async with open_engine(family, max_single_sequence_length=512) as engine:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "y" * 200}]
        answer = await engine.chat.completions.create(
            messages=messages, max_tokens=60, temperature=0, ignore_eos=True
        )
        assert answer.usage is not None
        text = answer.choices[0].message.content
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And?"}]
        _, cached = await complete(engine, {"messages": messages, "max_tokens": 4})

    assert cached > answer.usage.prompt_tokens - CHECKPOINT_INTERVAL


@families
async def test_choices_fork_the_state_of_the_prompt(open_engine: OpenEngine, family: str) -> None:
    request = _request("Say something.", max_tokens=30, n=5, temperature=1.0, seed=3)
    async with open_engine(family) as engine:
        (together, _) = await complete(engine, request)
        _check_all_free(engine)
    async with open_engine(family, prefix_cache_mode="disable", max_num_sequence=1) as engine:
        (one_by_one, _) = await complete(engine, request)

    assert len(set(together)) > 1
    assert together == one_by_one


@families
async def test_preempted_sequences_change_no_token(open_engine: OpenEngine, family: str) -> None:
    # Choices begin together, so that they do not fit together, however slow the event loop is.
    options = {"n": 6, "temperature": 1.0, "seed": 3, "ignore_eos": True}
    request = _request("Say something.", max_tokens=150, **options)
    async with open_engine(family, max_num_sequence=1, prefix_cache_mode="disable") as engine:
        alone, _ = await complete(engine, request)

    small = {"max_total_sequence_length": 400, "max_single_sequence_length": 200}
    async with open_engine(family, **small, prefix_cache_mode="disable") as engine:
        answers, _ = await complete(engine, request)
        statistics = engine.statistics()
        _check_all_free(engine)

    assert answers == alone
    assert statistics.preemptions > 0


@families
@pytest.mark.parametrize("draft_length", [2, 6])
async def test_rejected_drafts_change_no_token(
    open_engine: OpenEngine, family: str, draft_length: int
) -> None:
    """A model repeats itself, so some drafts by prompt lookup are right, and some are not."""
    requests = [_request(f"{i} " + "one two one six " * 6, max_tokens=100) for i in range(3)]
    alone = await _texts_alone(open_engine, family, requests)

    drafts = {"speculative_mode": "prompt_lookup", "spec_draft_length": draft_length}
    async with open_engine(family, **drafts) as engine:
        answers = [texts for texts, _ in await complete_all(engine, requests)]
        statistics = engine.statistics()
        _check_all_free(engine)

    assert answers == alone
    assert statistics.draft_tokens > statistics.accepted_tokens
    assert (
        family.startswith("lfm2") or statistics.accepted_tokens > 0
    )  # Which does not repeat itself.


@families
async def test_a_cancelled_request_frees_its_slots(open_engine: OpenEngine, family: str) -> None:
    async with open_engine(family, prefix_cache_mode="disable") as engine:
        with CancelScope() as scope:
            stream = await engine.chat.completions.create(
                **_request("Say something long.", max_tokens=400), stream=True
            )
            async with stream:
                async for _ in stream:
                    scope.cancel()
        with fail_after(5):
            while engine.statistics().num_running:
                await lowlevel.checkpoint()
        _check_all_free(engine)

    assert scope.cancelled_caught


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sampled(seed=(0, 1))
async def test_random_requests_stay_within_the_slots(open_engine: OpenEngine, seed: int) -> None:
    """The memory of checkpoints stays in its budget, whatever is cached, forked and evicted."""
    generator = random.Random(seed)
    requests = [
        _request(PREFIX[: generator.randrange(200)] + str(i), max_tokens=generator.randrange(1, 60))
        for i in range(60)
    ]
    alone = await _texts_alone(open_engine, "lfm2", requests)
    limits = {"max_total_sequence_length": 2048, "max_single_sequence_length": 512}

    async with open_engine("lfm2", max_num_sequence=4, **limits) as engine:
        answers = [texts for texts, _ in await complete_all(engine, requests)]
        statistics = engine.statistics()

    assert answers == alone
    assert statistics.total_slots <= 2 * 4 * slots_of(512)


# ---- What is refused ----


async def test_a_history_is_for_recurrent_models_only(open_engine: OpenEngine) -> None:
    async with open_engine("lfm2", max_history_size=1) as engine:
        texts, _ = await complete(engine, _request("Hello"))
    assert texts[0]

    with pytest.raises(
        BadRequestError, match=r"KV cache does not support max_history_size, .* 4 in"
    ):
        async with open_engine("llama", max_history_size=4):
            pass


async def test_prefixes_are_not_transferred(open_engine: OpenEngine) -> None:
    async with open_engine("lfm2") as engine:
        with pytest.raises(BadRequestError, match="cannot be transferred"):
            await engine.count_cached_tokens(prompt="Hello")


@pytest.mark.parametrize(
    ("family", "field", "value", "problem"),
    [
        ("lfm2", "layer_types", ["conv"] * 3, 'must contain "full_attention" at least once'),
        ("lfm2", "layer_types", ["conv"], "must have one entry per layer"),
        ("lfm2", "layer_types", ["mamba"] * 3, 'must contain only "conv", "full_attention"'),
        ("lfm2", "conv_L_cache", 0, "must be"),
        ("qwen3_5_text", "linear_num_value_heads", 3, "must be a multiple of linear_num_key_heads"),
        ("qwen3_5_text", "linear_key_head_dim", 0, "must be"),
    ],
)
async def test_bad_fields_are_named(
    tiny_directory: Directory, tmp_path: Path, family: str, field: str, value: object, problem: str
) -> None:
    import json
    import shutil

    directory = tmp_path / "model"
    shutil.copytree(tiny_directory(family), directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {field: value}))

    with pytest.raises(ModelLoadError, match=problem) as caught:
        async with AsyncMLCEngine(directory):
            pass
    assert caught.value.field == field
