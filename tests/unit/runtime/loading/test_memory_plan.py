"""Division of a memory budget, with models that consist of sizes only."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc import BadRequestError, EngineConfig, InsufficientMemoryError, ModelLoadError
from aiomlc.config import PAGE_SIZE, Mode
from aiomlc.runtime.loading import memory_budget as memory
from aiomlc.runtime.loading.memory_budget import MemoryBudget, memory_budget
from aiomlc.runtime.loading.memory_plan import MemoryPlan, ModelMemory, plan_models
from tests.files import write_files

KIB, MIB, GIB = 2**10, 2**20, 2**30
# An 8B model in 4 bits.
LARGE = ModelMemory("large", "q4f16_1", 8192, 128256, 4 * GIB, 128 * KIB, 20 * KIB, 300 * KIB)
SIZE_NAMES = (
    *("max_num_sequence", "max_total_sequence_length", "max_single_sequence_length"),
    *("prefill_chunk_size", "step_token_budget"),
)
SMALL = ModelMemory("small", "q4f16_1", 2048, 128256, 100 * MIB, 8 * KIB, 2 * KIB, 30 * KIB)


def plan_of(
    mode: Mode,
    free: int,
    *models: ModelMemory,
    utilization: float = 1.0,
    **fields: Any,  # noqa: ANN401
) -> MemoryPlan:
    config = EngineConfig(**fields)
    budget = MemoryBudget(free, "the test", utilization)
    return plan_models(models or (LARGE,), mode, config, budget)


@pytest.mark.parametrize(
    ("mode", "free", "fields", "rows", "total", "single", "chunk", "step"),
    [
        # With enough memory, the mode determines the sizes.
        ("local", 64 * GIB, {}, 32, 16384, 8192, 512, 128),
        ("interactive", 64 * GIB, {}, 1, 8192, 8192, 512, 128),
        ("server", 512 * GIB, {}, 128, 128 * 8192, 8192, 512, 128),
        # With less memory, the tokens and the longest sequence shrink.
        ("local", 5 * GIB, {}, 32, 7232, 7232, 512, 128),
        ("interactive", 5 * GIB, {}, 1, 7472, 7472, 512, 128),
        ("server", 20 * GIB, {}, 128, 129360, 8192, 512, 128),
        # One sequence of the full context.
        ("local", 64 * GIB, {"max_num_sequence": 1}, 1, 8192, 8192, 512, 128),
        # Given sizes take precedence; tokens are rounded up to pages.
        ("server", 64 * GIB, {"max_total_sequence_length": 1000}, 128, 1008, 1008, 512, 128),
        ("server", 64 * GIB, {"max_single_sequence_length": 100}, 128, 12800, 100, 128, 128),
        ("local", 64 * GIB, {"prefill_chunk_size": 64}, 32, 16384, 8192, 64, 64),
        # What is not given adapts to what is.
        ("local", 64 * GIB, {"prefill_chunk_size": 8}, 8, 16384, 8192, 8, 8),
        ("local", 64 * GIB, {"step_token_budget": 16}, 16, 16384, 8192, 512, 16),
        ("local", 64 * GIB, {"step_token_budget": 900}, 32, 16384, 8192, 900, 900),
        ("local", 64 * GIB, {"max_num_sequence": 600}, 600, 16384, 8192, 600, 600),
        ("server", 64 * GIB, {"step_token_budget": 256}, 128, 489808, 8192, 512, 256),
    ],
)
def test_sizes_are_given_or_inferred(
    mode: Mode,
    free: int,
    fields: dict[str, Any],
    rows: int,
    total: int,
    single: int,
    chunk: int,
    step: int,
) -> None:
    plan = plan_of(mode, free, **fields)

    assert plan.max_num_sequence == rows
    assert plan.max_total_sequence_length == total
    assert plan.max_single_sequence_length == single
    assert (plan.prefill_chunk_size, plan.step_token_budget) == (chunk, step)
    assert plan.given == frozenset(fields)
    assert plan.fits


@given(
    mode=st.sampled_from(["local", "interactive", "server"]),
    free=st.integers(4 * GIB, 2**42),
    utilization=st.floats(0.01, 1),
    rows=st.none() | st.integers(1, 300),
    has_draft=st.booleans(),
)
def test_plan_fits_or_is_rejected(
    mode: Mode, free: int, utilization: float, rows: int | None, has_draft: bool
) -> None:
    models = (LARGE, SMALL) if has_draft else (LARGE,)
    fields: dict[str, Any] = {"max_num_sequence": rows}
    if has_draft:
        fields |= {"speculative_mode": "small_draft", "additional_models": ("small",)}

    try:
        plan, is_rejected = plan_of(mode, free, *models, utilization=utilization, **fields), False
    except InsufficientMemoryError as error:
        plan, is_rejected = error.plan, True

    assert plan.fits == (not is_rejected)
    assert plan.prefix_cache_bytes <= plan.kv_cache_bytes


def test_tokens_beyond_the_memory_are_rejected_with_the_plan() -> None:
    with pytest.raises(InsufficientMemoryError, match="the memory holds") as caught:
        plan_of("local", 6 * GIB, max_total_sequence_length=100_000)

    assert isinstance(caught.value, ModelLoadError)
    assert caught.value.field == "max_total_sequence_length"
    assert caught.value.plan.max_total_sequence_length == 100_000
    assert str(caught.value.plan) in str(caught.value)
    assert "MORE THAN THE BUDGET" in str(caught.value)


def test_weights_beyond_the_memory_are_rejected() -> None:
    with pytest.raises(InsufficientMemoryError) as caught:
        plan_of("interactive", 3 * GIB)

    assert caught.value.plan.weight_bytes > caught.value.plan.budget.nbytes


def test_draft_model_adds_weights_and_a_kv_cache() -> None:
    alone = plan_of("local", 64 * GIB)
    both = plan_of(
        "local", 64 * GIB, LARGE, SMALL, speculative_mode="small_draft", additional_models=("s",)
    )

    assert both.weight_bytes == alone.weight_bytes + 100 * MIB
    assert both.kv_cache_bytes * 128 == alone.kv_cache_bytes * 136
    assert both.logits_bytes > alone.logits_bytes


@pytest.mark.parametrize(
    ("fields", "fraction"),
    [
        ({}, 1.0),
        ({"prefix_cache_mode": "disable"}, 0.0),
        ({"prefix_cache_max_num_recycling_seqs": -1}, 1.0),
        ({"prefix_cache_max_num_recycling_seqs": 1}, 512 / 1025),
    ],
)
def test_prefix_cache_may_use_a_fraction_of_the_kv_cache(
    fields: dict[str, Any], fraction: float
) -> None:
    plan = plan_of("local", 64 * GIB, **fields)

    assert plan.prefix_cache_bytes == pytest.approx(fraction * plan.kv_cache_bytes)


def test_str_of_a_plan_is_a_table() -> None:
    plan = plan_of("local", 16 * GIB, utilization=0.5, max_num_sequence=8)

    assert repr(plan).startswith("<MemoryPlan of ")
    assert len(repr(plan)) < 120
    assert str(plan).splitlines() == [
        "large (q4f16_1), mode local",
        "  weights                        4,096.0 MiB  mapped from the cache on disk",
        "  KV cache                       2,050.0 MiB  1,025 pages of 16 tokens of 131,072 bytes",
        "    prefix cache                 2,050.0 MiB  at most, 8 sequences",
        "  workspace                         85.0 MiB  estimated",
        "  logits                             8.3 MiB",
        "  total                          6,239.3 MiB",
        "  budget                         8,192.0 MiB  50% of 16,384.0 MiB of the test",
        "  max_num_sequence                     8      given",
        "  max_total_sequence_length       16,384      inferred",
        "  max_single_sequence_length       8,192      inferred",
        "  prefill_chunk_size                 512      inferred",
        "  step_token_budget                  128      inferred",
    ]


@pytest.mark.parametrize(
    ("limit", "used", "free", "source"),
    [
        ("max", "0", 1000 * KIB, "the system's free memory"),
        (None, None, 1000 * KIB, "the system's free memory"),
        (f"{10**12}", "0", 1000 * KIB, "the system's free memory"),
        ("500000", "100000", 400000, "the control group's limit"),
        ("500000", "600000", 0, "the control group's limit"),
    ],
)
def test_budget_is_the_smaller_of_system_and_control_group(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    limit: str | None,
    used: str | None,
    free: int,
    source: str,
) -> None:
    files = {
        "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 1000 kB\n",
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": limit,
        "sys/fs/cgroup/memory.current": used,
    }
    write_files(tmp_path, {name: text for name, text in files.items() if text is not None})
    monkeypatch.setattr(memory, "_ROOT", tmp_path)

    assert memory_budget(None) == MemoryBudget(free, source, 0.85)
    assert memory_budget(0.5).nbytes == free // 2


@pytest.mark.parametrize("value", [0, -0.5, 1.01, True, "all"])
def test_memory_utilization_must_be_above_0_and_at_most_1(value: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError, match="gpu_memory_utilization must be") as caught:
        EngineConfig(gpu_memory_utilization=value)

    assert caught.value.param == "gpu_memory_utilization"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"max_single_sequence_length": 9000},
            "must be <= the model's context length (8192), got 9000: lower it, or leave it out",
        ),
        (
            {"max_single_sequence_length": 600, "max_total_sequence_length": 500},
            "max_single_sequence_length must be <= max_total_sequence_length (500), got 600",
        ),
        (
            {"max_num_sequence": 9, "step_token_budget": 8},
            "max_num_sequence must be <= step_token_budget (8), got 9",
        ),
        (
            {"step_token_budget": 1024, "prefill_chunk_size": 512},
            "step_token_budget must be <= prefill_chunk_size (512), got 1024",
        ),
        (
            {
                "spec_draft_length": 8,
                "step_token_budget": 8,
                "speculative_mode": "prompt_lookup",
            },
            "spec_draft_length must be <= step_token_budget - 1 (7), got 8",
        ),
    ],
)
def test_a_size_that_cannot_be_had_is_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequestError, match=re.escape(message)) as caught:
        plan_of("local", 64 * GIB, **fields)

    assert caught.value.param == next(iter(fields))


def test_a_single_sequence_that_the_memory_does_not_hold_is_rejected() -> None:
    with pytest.raises(InsufficientMemoryError, match="the memory holds 7"):
        plan_of("local", 5 * GIB, max_single_sequence_length=8192)


SIZES = st.integers(1, 700)


@given(
    mode=st.sampled_from(["local", "interactive", "server"]),
    mebibytes=st.integers(4096, 8192),
    context_window=SIZES,
    given_sizes=st.fixed_dictionaries({}, optional=dict.fromkeys(SIZE_NAMES, SIZES)),
    draft_length=st.none() | st.integers(0, 200),
)
def test_no_size_that_is_given_is_lowered(
    mode: Mode,
    mebibytes: int,
    context_window: int,
    given_sizes: dict[str, int],
    draft_length: int | None,
) -> None:
    fields: dict[str, Any] = dict(given_sizes)
    if draft_length is not None:
        fields |= {"speculative_mode": "prompt_lookup", "spec_draft_length": draft_length}
    model = replace(LARGE, context_window=context_window)

    rejection: BadRequestError | None = None
    try:
        plan = plan_of(mode, mebibytes * MIB, model, **fields)
    except InsufficientMemoryError as error:
        plan = error.plan
    except BadRequestError as error:
        rejection = error
    if rejection is not None:
        assert f"{rejection.param} must be <= " in str(rejection)
        assert f", got {fields[rejection.param or '']}: lower it" in str(rejection)
        return

    got = {name: getattr(plan, name) for name in given_sizes}
    pages = -(-got.pop("max_total_sequence_length", 0) // PAGE_SIZE)
    assert pages * PAGE_SIZE >= given_sizes.pop("max_total_sequence_length", 0)
    assert got == given_sizes
    assert (draft_length or 0) < plan.step_token_budget


# A mixture of 20 GiB, of which a token uses 2 GiB.
MIXTURE = replace(LARGE, name="mixture", weight_bytes=20 * GIB, idle_expert_bytes=18 * GIB)


def test_idle_experts_are_dropped_only_if_memory_is_short() -> None:
    ample = plan_of("local", 64 * GIB, MIXTURE)
    short = plan_of("local", 18 * GIB, MIXTURE)

    assert ample.fits
    assert not ample.drops_experts
    assert "dropped if memory is short" in str(ample)
    assert short.fits
    assert short.drops_experts
    assert "experts are read from disk" in str(short)
    # Most of the memory is left to experts.
    assert short.kv_cache_bytes <= 18 * GIB / 8
    assert short.max_single_sequence_length == ample.max_single_sequence_length


def test_what_every_token_uses_has_to_fit() -> None:
    with pytest.raises(InsufficientMemoryError) as error:
        plan_of("local", 2 * GIB, MIXTURE)

    assert not error.value.plan.fits
    with pytest.raises(InsufficientMemoryError):
        plan_of("local", 18 * GIB, replace(MIXTURE, idle_expert_bytes=0))
