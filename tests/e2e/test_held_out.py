from __future__ import annotations

import pytest

from tests.e2e.held_out import read_cases, score

CASES_PER_SKILL = 100
REQUIRED = 0.9


# What the model knows does not depend on the event loop; 1,500 answers take a while.
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.timeout(600)
async def test_nine_of_ten_held_out_answers_are_exact_in_every_skill() -> None:
    cases = read_cases(CASES_PER_SKILL)

    scores = await score(cases)

    assert len(scores) == 15
    assert {skill: share for skill, share in scores.items() if share < REQUIRED} == {}
