"""Dialogues that practice wrong answers."""

from __future__ import annotations

import random

from training.dialogues.records import Fact
from training.mending import practice

_FACTS = [Fact(f"What is {a} + 1?", f"{a} + 1 = {a + 1}.", "", "") for a in range(3)]


def test_some_dialogues_ask_for_the_wrong_facts_and_the_others_are_the_usual_ones() -> None:
    rng = random.Random(1)
    draw = practice(_FACTS)
    questions = {fact.question: fact.answer for fact in _FACTS}

    dialogues = [draw(rng) for _ in range(300)]

    hard = [d for d in dialogues if all(m["content"] in questions for m in d.messages[::2])]
    assert 60 < len(hard) < 120
    for dialogue in hard:
        for asked, answer in zip(dialogue.messages[::2], dialogue.messages[1::2], strict=True):
            assert answer["content"] == questions[asked["content"]]


def test_without_wrong_facts_every_dialogue_is_a_usual_one() -> None:
    draw = practice([])

    skills = {draw(random.Random(seed)).skill for seed in range(100)}

    assert {"tools", "stories", "memory"} <= skills
