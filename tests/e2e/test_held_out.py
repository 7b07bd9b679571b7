from __future__ import annotations

import pytest

from aiomlc import EngineConfig
from tests.e2e.held_out import read_cases, score

CASES_PER_SKILL = 100
MIN_FRACTION = 0.9
FEW_CASES_PER_SKILL = 25  # For other configs than the default.


# The output does not depend on the event loop, and 1,500 completions take a while.
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.timeout(600)
async def test_90_percent_of_held_out_answers_are_exact_in_every_skill() -> None:
    cases = read_cases(CASES_PER_SKILL)

    scores = await score(cases)

    assert len(scores) == 15
    assert {skill: score for skill, score in scores.items() if score < MIN_FRACTION} == {}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.timeout(300)
@pytest.mark.thorough
async def test_90_percent_of_held_out_answers_are_exact_with_an_int8_cache() -> None:
    cases = read_cases(FEW_CASES_PER_SKILL)

    scores = await score(cases, EngineConfig(kv_cache_dtype="int8"))

    assert sum(scores.values()) / len(scores) >= MIN_FRACTION
