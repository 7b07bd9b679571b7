"""Exact answers to many short questions, by one pass over each question and its answer."""

from __future__ import annotations

__all__ = ("wrong_facts",)

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from training.dialogues.records import Dialogue, Fact, say
from training.model import Prepared, Shape, Weights, forward, prepare
from training.tokenizer import encode_dialogue

_ROWS = 256


def wrong_facts(
    weights: Weights,
    shape: Shape,
    tokenizer: Tokenizer,
    facts: Sequence[Fact],
    margin: float = 0.0,
) -> list[tuple[Fact, str]]:
    """Return the facts that greedy decoding answers differently, and its tokens at each position.

    One pass is enough: the answer is generated exactly if every token of it is the most likely one
    after the tokens before it.

    Args:
        weights: The weights, which are rounded to `q4f16_1`.
        shape: The sizes of the model.
        tokenizer: Its tokenizer.
        facts: The questions and answers.
        margin: By how much the logits of a right answer exceed all others at least.
    """
    model = prepare(weights, shape, quantized=True, dtype=torch.float32)
    rows = [(*encode_dialogue(tokenizer, _dialogue(fact)), fact) for fact in facts]
    rows.sort(key=lambda row: len(row[0]))
    wrong = []
    for start in range(0, len(rows), _ROWS):
        batch = rows[start : start + _ROWS]
        predicted = _predict(model, [token_ids for token_ids, _, _ in batch], margin)
        for (token_ids, answers, fact), row in zip(batch, predicted, strict=True):
            asked = [index for index, is_answer in enumerate(answers) if is_answer]
            got = [row[index - 1] for index in asked]
            if got != [token_ids[index] for index in asked]:
                wrong.append((fact, tokenizer.decode(got, skip_special_tokens=False)))
    return wrong


def _dialogue(fact: Fact) -> Dialogue:
    messages = (say("user", fact.question), say("assistant", fact.answer, fact.values))
    return Dialogue("", messages, fact.key)


def _predict(model: Prepared, rows: list[list[int]], margin: float) -> list[list[int]]:
    """Return the most likely next tokens, the row's own handicapped by `margin`."""
    length = max(map(len, rows))
    device = model.embedding.device
    flat = torch.tensor([row + [0] * (length - len(row)) for row in rows], device=device).flatten()
    with torch.no_grad():
        hidden = forward(model, flat, ((len(rows), length),))
        logits = functional.linear(hidden, model.embedding)
        logits[torch.arange(len(flat) - 1, device=device), flat[1:]] -= margin
    predicted: list[list[int]] = logits.argmax(-1).view(len(rows), length).tolist()
    return predicted
