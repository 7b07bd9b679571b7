"""Evaluation of the quantized weights: exact answers per skill on held-out prompts."""

from __future__ import annotations

__all__ = ("Case", "evaluate", "held_out_cases", "write_cases")

import gzip
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from training.dialogues.compose import SKILLS, held_out_dialogue
from training.dialogues.records import Dialogue, JsonObject, Message
from training.dialogues.template import assistant_text, render
from training.dialogues.words import NAMES
from training.model import Prepared, PreparedLayer, Shape, Weights, prepare, rotary_tables, rotate
from training.tokenizer import END, token_id

_LOG = logging.getLogger("training")
_MAX_TOKENS = 160
_MAX_STORY_TOKENS = 420
_MIN_STORY_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt and the answers that count as correct."""

    skill: str
    messages: tuple[Message, ...]
    tools: tuple[JsonObject, ...]
    accept: tuple[str, ...]
    tool_calls: tuple[JsonObject, ...]
    characters: tuple[str, ...]

    def accepts(self, answer: str, *, finished: bool) -> bool:
        """Return whether `answer` is correct."""
        if not finished:
            return False
        if not self.characters:
            return answer in self.accept
        capitalized = set(re.findall(r"\b[A-Z][a-z]+", answer))
        other_names = (capitalized & set(NAMES)) - set(self.characters)
        names_all = all(name in answer for name in self.characters)
        return names_all and not other_names and len(answer) >= _MIN_STORY_CHARACTERS

    def document(self) -> JsonObject:
        """Return the case as JSON values, for the held-out file."""
        document: JsonObject = {"skill": self.skill, "messages": list(self.messages)}
        if self.tools:
            document["tools"] = list(self.tools)
        if self.tool_calls:
            document["tool_calls"] = list(self.tool_calls)
        if self.characters:
            document["characters"] = list(self.characters)
        else:
            document["accept"] = list(self.accept)
        return document


def _case(dialogue: Dialogue) -> Case:
    *messages, reference = dialogue.messages
    calls = tuple(call["function"] for call in reference.get("tool_calls", ()))
    accept = (assistant_text(reference), *dialogue.accept)
    return Case(dialogue.skill, tuple(messages), dialogue.tools, accept, calls, dialogue.characters)


def held_out_cases(count: int, seed: int) -> list[Case]:
    """Draw `count` held-out cases of every skill."""
    cases = []
    for skill in SKILLS:
        rng = random.Random(f"{seed}/{skill}")
        cases += [_case(held_out_dialogue(skill, rng)) for _ in range(count)]
    return cases


def write_cases(path: Path, cases: Sequence[Case]) -> None:
    """Write the cases as gzipped JSON lines, reproducibly to the byte."""
    lines = "".join(json.dumps(case.document(), ensure_ascii=False) + "\n" for case in cases)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


@dataclass(slots=True)
class _Cache:
    """The KV cache: keys and values, [layers, rows, heads, capacity, head_dim]."""

    keys: torch.Tensor
    values: torch.Tensor
    length: int = 0


def _linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply with activations rounded to int8 in groups of 32, as the CPU kernels do."""
    groups = x.unflatten(-1, (-1, 32))
    scale = (groups.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-12)
    return functional.linear((torch.round(groups / scale) * scale).flatten(-2), weight)


def _attention(
    shape: Shape, qkv: torch.Tensor, index: int, cache: _Cache, mask: torch.Tensor
) -> torch.Tensor:
    rows, new, _ = qkv.shape
    start, end = cache.length, cache.length + new
    heads = qkv.view(rows, new, -1, shape.head_dim).transpose(1, 2)
    cosine, sine = (table[start:end] for table in rotary_tables(shape, end, qkv))
    rotated = rotate(heads[:, : shape.heads + shape.kv_heads], cosine, sine)
    queries, keys = rotated.split((shape.heads, shape.kv_heads), 1)
    cache.keys[index, :, :, start:end] = keys.half()
    cache.values[index, :, :, start:end] = heads[:, shape.heads + shape.kv_heads :].half()
    mixed = functional.scaled_dot_product_attention(
        queries,
        cache.keys[index, :, :, :end].float(),
        cache.values[index, :, :, :end].float(),
        attn_mask=mask,
        enable_gqa=True,
    )
    return mixed.transpose(1, 2).reshape(rows, new, -1)


def _block(
    model: Prepared, layer: PreparedLayer, x: torch.Tensor, mixed: torch.Tensor
) -> torch.Tensor:
    shape = model.shape
    x = x + _linear(mixed, layer.out)
    normed = functional.rms_norm(x, (shape.hidden,), layer.mlp_norm, shape.norm_eps)
    gate, up = _linear(normed, layer.gate_up).chunk(2, -1)
    return x + _linear(functional.silu(gate) * up, layer.down)


def _advance(
    model: Prepared, token_ids: torch.Tensor, cache: _Cache, padding: torch.Tensor
) -> torch.Tensor:
    """Append `token_ids` [rows, new] and return the next token of every row."""
    shape, new = model.shape, token_ids.shape[1]
    positions = torch.arange(cache.length + new, device=token_ids.device)
    queries = positions[cache.length :]
    allowed = (positions[None, None] <= queries[None, :, None]) & (
        positions[None, None] >= padding[:, None, None]
    )
    # A padding token sees itself, so that no row of the softmax is empty.
    mask = (allowed | (positions[None, None] == queries[None, :, None]))[:, None]
    x = functional.embedding(token_ids, model.embedding)
    for index, layer in enumerate(model.layers):
        normed = functional.rms_norm(x, (shape.hidden,), layer.input_norm, shape.norm_eps)
        x = _block(
            model, layer, x, _attention(shape, _linear(normed, layer.qkv), index, cache, mask)
        )
    cache.length += new
    last = functional.rms_norm(x[:, -1], (shape.hidden,), model.norm, shape.norm_eps)
    return _linear(last, model.embedding).argmax(-1)


def _generate(
    model: Prepared, prompts: list[list[int]], limit: int, end_id: int
) -> list[list[int]]:
    """Return greedy completions. Left padding is harmless, since rotary positions are relative."""
    shape, longest, device = model.shape, max(map(len, prompts)), model.embedding.device
    padded = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
    padding = torch.tensor([longest - len(prompt) for prompt in prompts], device=device)
    size = (shape.layers, len(prompts), shape.kv_heads, longest + limit, shape.head_dim)
    keys, values = (torch.zeros(size, dtype=torch.half, device=device) for _ in range(2))
    cache = _Cache(keys, values)
    column = _advance(model, torch.tensor(padded, device=device), cache, padding)
    columns = [column]
    done = column == end_id
    while len(columns) < limit and not bool(done.all()):
        column = _advance(model, column[:, None], cache, padding)
        done |= column == end_id
        columns.append(column)
    rows: list[list[int]] = torch.stack(columns, 1).tolist()
    return rows


def _prompt(tokenizer: Tokenizer, case: Case) -> list[int]:
    text = "".join(segment.text for segment in render(case.messages, case.tools))
    token_ids: list[int] = tokenizer.encode(
        text + "<|im_start|>assistant\n", add_special_tokens=False
    ).ids
    return token_ids


def evaluate(
    weights: Weights, shape: Shape, tokenizer: Tokenizer, cases: Sequence[Case], rows: int = 100
) -> dict[str, Any]:
    """Return the fraction of correct answers per skill, and the wrong answers.

    Args:
        weights: The weights, which are quantized for the evaluation.
        shape: The sizes of the model.
        tokenizer: The tokenizer.
        cases: The prompts.
        rows: Prompts per batch.
    """
    model = prepare(weights, shape, quantized=True, dtype=torch.float32)
    end_id = token_id(tokenizer, END)
    correct: Counter[str] = Counter()
    total: Counter[str] = Counter()
    wrong: list[dict[str, str]] = []
    prompts = sorted(
        ((_prompt(tokenizer, case), case) for case in cases),
        key=lambda pair: (bool(pair[1].characters), len(pair[0])),
    )
    for start in range(0, len(prompts), rows):
        batch = prompts[start : start + rows]
        limit = _MAX_STORY_TOKENS if any(case.characters for _, case in batch) else _MAX_TOKENS
        with torch.no_grad():
            answers = _generate(model, [prompt for prompt, _ in batch], limit, end_id)
        for (_, case), token_ids in zip(batch, answers, strict=True):
            finished = end_id in token_ids
            answer_ids = token_ids[: token_ids.index(end_id)] if finished else token_ids
            answer = tokenizer.decode(answer_ids, skip_special_tokens=False)
            total[case.skill] += 1
            if case.accepts(answer, finished=finished):
                correct[case.skill] += 1
            else:
                question = str(case.messages[-1]["content"])
                expected = " | ".join(case.characters or case.accept)
                wrong.append(
                    {"skill": case.skill, "asked": question, "expected": expected, "got": answer}
                )
    return {"scores": {skill: correct[skill] / total[skill] for skill in total}, "wrong": wrong}
