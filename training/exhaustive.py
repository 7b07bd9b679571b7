"""All sums, differences and comparisons of numbers to 99, and many extractions."""

from __future__ import annotations

__all__ = ("exhaustive_facts", "extraction_facts", "number_facts", "wrong_facts")

import itertools
import random
from collections.abc import Iterator, Sequence

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from training.dialogues.extraction import constrained_extraction, extraction
from training.dialogues.records import Dialogue, Fact, is_held_out, say
from training.model import Prepared, Shape, Weights, forward, prepare
from training.tokenizer import encode_dialogue

_ROWS = 256
_SEED = 2026
_EXTRACTIONS = 2000

_NUMBER_QUESTIONS = {
    "sums": "What is {a} + {b}?",
    "differences": "What is {a} - {b}?",
    "bigger": "Which is bigger, {a} or {b}?",
    "smaller": "Which is smaller, {a} or {b}?",
    "is bigger": "Is {a} bigger than {b}?",
    "is smaller": "Is {a} smaller than {b}?",
}


def exhaustive_facts() -> dict[str, list[Fact]]:
    """Return all questions of each kind, by the name of the kind."""
    facts = {kind: list(number_facts(kind)) for kind in _NUMBER_QUESTIONS}
    facts["extraction"] = list(extraction_facts(_EXTRACTIONS, constrained=False))
    facts["constrained extraction"] = list(extraction_facts(_EXTRACTIONS, constrained=True))
    return facts


def _number_answer(kind: str, a: int, b: int) -> str:
    if kind == "sums":
        return f"{a} + {b} = {a + b}."
    if kind == "differences":
        return f"{a} - {b} = {a - b}."
    word = kind.removeprefix("is ")
    if kind in ("bigger", "smaller"):
        first, second = sorted((a, b), reverse=word == "bigger")
        return f"{a} and {b} are equal." if a == b else f"{first} is {word} than {second}."
    holds = a > b if word == "bigger" else a < b
    return f"Yes, {a} is {word} than {b}." if holds else f"No, {a} is not {word} than {b}."


def number_facts(kind: str) -> Iterator[Fact]:
    """Yield the question `kind` of `exhaustive_facts` for every two numbers to 99."""
    for a, b in itertools.product(range(100), repeat=2):
        question = _NUMBER_QUESTIONS[kind].format(a=a, b=b)
        yield Fact(question, _number_answer(kind, a, b), "", question)


def extraction_facts(count: int, *, constrained: bool) -> Iterator[Fact]:
    """Yield held-out extractions, whose keys are in the prompt or `constrained` by a grammar."""
    rng = random.Random(_SEED)
    while count:
        fact = constrained_extraction(rng) if constrained else extraction(rng)
        if is_held_out(fact.key):
            count -= 1
            yield fact


def wrong_facts(
    weights: Weights, shape: Shape, tokenizer: Tokenizer, facts: Sequence[Fact]
) -> list[tuple[Fact, str]]:
    """Return the facts that greedy decoding answers differently, and its tokens at each position.

    One pass over question and answer is enough: the answer is generated exactly if every token of
    it is the most likely one after the tokens before it.
    """
    model = prepare(weights, shape, quantized=True, dtype=torch.float32)
    rows = [(*encode_dialogue(tokenizer, _dialogue(fact)), fact) for fact in facts]
    rows.sort(key=lambda row: len(row[0]))
    wrong = []
    for start in range(0, len(rows), _ROWS):
        batch = rows[start : start + _ROWS]
        predicted = _predict(model, [token_ids for token_ids, _, _ in batch])
        for (token_ids, answers, fact), row in zip(batch, predicted, strict=True):
            asked = [index for index, is_answer in enumerate(answers) if is_answer]
            got = [row[index - 1] for index in asked]
            if got != [token_ids[index] for index in asked]:
                wrong.append((fact, tokenizer.decode(got, skip_special_tokens=False)))
    return wrong


def _dialogue(fact: Fact) -> Dialogue:
    messages = (say("user", fact.question), say("assistant", fact.answer, fact.values))
    return Dialogue("", messages, fact.key)


def _predict(model: Prepared, rows: list[list[int]]) -> list[list[int]]:
    """Return the most likely next token at every position of every row."""
    length = max(map(len, rows))
    flat = torch.tensor([row + [0] * (length - len(row)) for row in rows]).flatten()
    with torch.no_grad():
        hidden = forward(model, flat, ((len(rows), length),))
        logits = functional.linear(hidden, model.embedding)
    predicted: list[list[int]] = logits.argmax(-1).view(len(rows), length).tolist()
    return predicted
