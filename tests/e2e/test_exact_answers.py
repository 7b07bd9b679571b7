"""The bundled model answers every question about two numbers to 99, and copies what it extracts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from anyio import CapacityLimiter, create_task_group

from aiomlc import AsyncMLCEngine
from tests.e2e.held_out import Case, score
from training.dialogues.exhaustive import NUMBER_KINDS, extraction_facts, number_facts
from training.dialogues.records import Fact

NUM_EXTRACTIONS = 500  # Of the 2,000 of `python -m training exhaust`.
MIN_RIGHT = 0.99


def cases(facts: Iterable[Fact]) -> list[Case]:
    return [
        {"messages": [{"role": "user", "content": fact.question}], "accept": [fact.answer]}
        for fact in facts
    ]


def schema_of(answer: str) -> dict[str, Any]:
    """Return the response format of objects with the keys and the types of this one."""
    types = {str: "string", int: "integer"}
    properties = {key: {"type": types[type(value)]} for key, value in json.loads(answer).items()}
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "fields", "schema": schema}}


# The output does not depend on the event loop, and 10,000 completions take a while.
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("kind", NUMBER_KINDS)
@pytest.mark.timeout(600)
@pytest.mark.thorough
async def test_all_answers_about_two_numbers_to_99_are_right(kind: str) -> None:
    assert await score({kind: cases(number_facts(kind))}) == {kind: 1.0}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.timeout(600)
@pytest.mark.thorough
async def test_extractions_copy_names_and_numbers() -> None:
    facts = extraction_facts(NUM_EXTRACTIONS, constrained=False)

    scores = await score({"extraction": cases(facts)})

    assert scores["extraction"] >= MIN_RIGHT


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.timeout(600)
async def test_extractions_with_the_keys_of_a_schema_copy_values() -> None:
    wrong: list[tuple[Fact, str | None]] = []

    async def ask(fact: Fact) -> None:
        async with limiter:
            answer = await engine.chat.completions.create(
                messages=[{"role": "user", "content": fact.question}],
                response_format=schema_of(fact.answer),
                temperature=0,
            )
        if answer.choices[0].message.content != fact.answer:
            wrong.append((fact, answer.choices[0].message.content))

    limiter = CapacityLimiter(64)
    async with AsyncMLCEngine() as engine, create_task_group() as tasks:
        for fact in extraction_facts(NUM_EXTRACTIONS, constrained=True):
            tasks.start_soon(ask, fact)

    assert len(wrong) <= NUM_EXTRACTIONS * (1 - MIN_RIGHT), wrong
