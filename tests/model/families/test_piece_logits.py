"""Answers to prompts with images equal those of transformers, whatever is computed beside them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.prompt import Prompt, PromptPiece
from aiomlc.runtime.native.core import EngineOptions, NativeCore
from aiomlc.sampling_params import SequenceOptions
from benchmarks.native_model import open_native_model
from tests.model.make_piece_reference import STEPS
from tests.model.tiny_pieces import MODELS, PROMPTS, PiecePrompt, rows_of, write_model

REFERENCE = Path(__file__).parents[1] / "reference"
LARGEST_IMAGE = 8
TOLERANCE = 2e-4

Answers = list[tuple[list[int], list[TokenLogprob], int]]


def open_core(directory: Path, budget: int, device: str = "auto") -> NativeCore:
    config = EngineConfig(quantization="q0f32", num_threads=2, prefill_chunk_size=64)
    opened = open_native_model(directory, config, device)
    options = EngineOptions(step_token_budget=budget, max_recycling_sequences=16)
    return NativeCore(opened.native, [b"."] * opened.vocab_size, options)


def prompt_of(name: str, prompt: PiecePrompt) -> Prompt:
    model = MODELS[name]
    pieces = [
        PromptPiece(
            begin,
            hashlib.sha256(bytes([image])).digest(),
            rows_of(model, image),
            grid if model.has_grids else None,
        )
        for begin, image, grid in prompt.images
    ]
    return Prompt(prompt.token_ids, pieces)


def answers(core: NativeCore, name: str, prompts: Sequence[PiecePrompt]) -> Answers:
    """Return the greedy tokens, log-probabilities and cached tokens of prompts in one batch."""
    options = SequenceOptions(max_tokens=STEPS, temperature=0.0, top_logprobs=20)
    ids = [core.submit(prompt_of(name, prompt), options) for prompt in prompts]
    tokens: dict[int, list[int]] = defaultdict(list)
    logprobs: dict[int, list[TokenLogprob]] = defaultdict(list)
    cached: dict[int, int] = {}
    is_working = True
    while is_working:
        is_working = core.step()
        for record in core.drain():
            tokens[record.sequence_id].extend(record.token_ids)
            logprobs[record.sequence_id].extend(record.logprobs)
            cached[record.sequence_id] = record.cached_tokens
    core.check_invariants()
    return [(tokens[i], logprobs[i], cached[i]) for i in ids]


def check(
    actual: Answers,
    tokens: NDArray[np.int32],
    logprobs: NDArray[np.float32],
    tolerance: float = TOLERANCE,
) -> None:
    for (ids, entries, _), expected_ids, expected in zip(actual, tokens, logprobs, strict=True):
        assert ids == expected_ids.tolist()
        for entry, row in zip(entries, expected, strict=True):
            assert max(abs(row[token] - logprob) for token, logprob in entry.top) <= tolerance


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("name", MODELS)
def test_answers_equal_transformers_in_any_batch_chunk_and_order(tmp_path: Path, name: str) -> None:
    with np.load(REFERENCE / f"pieces_{name}.npz") as stored:
        tokens, logprobs = stored["tokens"], stored["logprobs"]
    write_model(tmp_path, name)
    results: list[Answers] = []
    for budget in (64, LARGEST_IMAGE, 11):
        core = open_core(tmp_path, budget)
        results.append([answers(core, name, [prompt])[0] for prompt in PROMPTS])
        core.reset()
        results.append(answers(core, name, PROMPTS))  # In one batch,
        results.append(answers(core, name, PROMPTS))  # and after hits of the prefix cache.
        assert all(cached > 0 for _, _, cached in results[-1])
        core.close()
        core.release()
    check(results[0], tokens, logprobs)
    for result in results:
        assert [answer[:2] for answer in result] == [answer[:2] for answer in results[0]]


@pytest.mark.usefixtures("model_cache")
def test_another_image_shares_the_text_before_it_only(tmp_path: Path) -> None:
    core = open_core(write_model(tmp_path, "qwen2_5_vl"), 64)
    (begin, _, grid), *_ = PROMPTS[1].images
    answers(core, "qwen2_5_vl", [PROMPTS[1]])
    (_, _, cached), *_ = answers(
        core, "qwen2_5_vl", [PiecePrompt(PROMPTS[1].token_ids, ((begin, 2, grid),))]
    )
    core.close()
    core.release()

    assert cached == begin


@pytest.mark.usefixtures("model_cache")
def test_an_image_that_sees_itself_must_fit_in_a_step(tmp_path: Path) -> None:
    core = open_core(write_model(tmp_path, "gemma3"), LARGEST_IMAGE - 1)
    with pytest.raises(BadRequestError, match=r"rows must have at most 7 rows, got 8"):
        core.submit(prompt_of("gemma3", PROMPTS[4]), SequenceOptions())
    core.close()
    core.release()
