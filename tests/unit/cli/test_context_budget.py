"""The choice of the turns that fit into a context window."""

from __future__ import annotations

import random

from aiomlc.cli.chat.context_budget import ContextBudget


def test_nothing_is_forgotten_while_a_quarter_of_the_window_is_free() -> None:
    budget = ContextBudget(1000)

    assert budget.turns_to_forget(100, [200, 200, 150]) == 0


def test_the_oldest_turns_are_forgotten_until_half_of_the_window_is_free() -> None:
    budget = ContextBudget(1000)

    assert budget.turns_to_forget(100, [200, 200, 200, 200]) == 3


def test_a_long_question_makes_all_turns_forgotten() -> None:
    assert ContextBudget(1000).turns_to_forget(5000, [1, 1, 1]) == 3


def test_the_tokens_of_the_template_are_learned() -> None:
    budget = ContextBudget(1000)
    assert budget.turns_to_forget(10, [10] * 9) == 0
    budget.learn(100 + 10 * 80)

    assert budget.turns_to_forget(10, [10] * 9) == 5


def test_prompts_always_leave_room_after_the_first_one() -> None:
    generator = random.Random(0)
    for _ in range(200):
        added = generator.randint(1, 60)
        budget = ContextBudget(1000)
        turns: list[int] = []
        for _ in range(40):
            question = generator.randint(1, 60)
            del turns[: budget.turns_to_forget(question, turns)]
            size = question + sum(turns) + added * (len(turns) + 1)
            assert size <= 1000
            budget.learn(size)
            turns.append(question + generator.randint(1, 150))


def test_the_used_tokens_include_those_of_the_template() -> None:
    budget = ContextBudget(1000)
    assert budget.turns_to_forget(10, [10] * 9) == 0
    budget.learn(100 + 10 * 80)

    assert budget.prompt_tokens == 900
    assert budget.used_tokens(5, [10, 20]) == 5 + 10 + 20 + 2 * 80
    assert budget.used_tokens(0, []) == 0
