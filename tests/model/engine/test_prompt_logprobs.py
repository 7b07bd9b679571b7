"""Prompt logprobs equal those of transformers, and those of the same tokens as a completion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc import Completion, EngineConfig, MLCEngine
from aiomlc.api.protocol.chat import TokenLogprob
from aiomlc.runtime.native.model import NativeModel
from tests.model.make_reference import PROMPT
from tests.model.tiny_models import TINY_CONFIGS

Directory = Callable[[str], Path]
OpenTiny = Callable[..., NativeModel]
REFERENCE = Path(__file__).parents[1] / "reference"


def open_engine(directory: Path, quantization: str, **config: Any) -> MLCEngine:  # noqa: ANN401
    settings = EngineConfig(quantization=quantization, num_threads=2, **config)
    return MLCEngine(directory, engine_config=settings)


def score(engine: MLCEngine, ids: Sequence[int], num_top: int) -> list[TokenLogprob]:
    """Return the prompt logprobs without the first entry, which is None."""
    completion: Completion = engine.completions.create(
        prompt=ids, prompt_logprobs=num_top, max_tokens=1
    )
    entries = completion.choices[0].prompt_logprobs or []
    assert entries[0] is None
    assert len(entries) == len(ids)
    return [entry for entry in entries if entry is not None]


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    rows: NDArray[np.float64] = logits.astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return rows


def logprobs_of_tokens(logits: NDArray[np.float32], tokens: Sequence[int]) -> NDArray[np.float64]:
    rows = log_softmax(logits)
    logprobs: NDArray[np.float64] = rows[np.arange(len(tokens)), np.array(tokens)]
    return logprobs


@pytest.mark.parametrize("architecture", TINY_CONFIGS)
@pytest.mark.sampled(6)
def test_prompt_logprobs_equal_those_of_transformers(
    tiny_directory: Directory, architecture: str
) -> None:
    with np.load(REFERENCE / f"{architecture}_q0f32.npz") as stored:
        tokens, logits = stored["tokens"].tolist(), stored["logits"]

    with open_engine(tiny_directory(architecture), "q0f32") as engine:
        entries = score(engine, [*PROMPT, *tokens], 3)[len(PROMPT) - 1 :]

    logprobs = np.array([entry.logprob for entry in entries])
    assert np.abs(logprobs - logprobs_of_tokens(logits, tokens)).max() <= 4e-4
    for row, entry in zip(log_softmax(logits), entries, strict=True):
        best = np.array([other.logprob for other in entry.top_logprobs])
        assert np.abs(best - np.sort(row)[:-4:-1]).max() <= 4e-4


@pytest.mark.parametrize("quantization", ["q0f32", "q4f16_1"])
def test_prompt_logprobs_equal_those_of_single_token_forward_passes(
    open_tiny: OpenTiny, tiny_directory: Directory, quantization: str
) -> None:
    model = open_tiny("qwen3", quantization)
    tokens = [(7 * i * i + 3 * i) % 256 for i in range(200)]
    model.add_sequence(0)
    rows = np.stack([model.forward([(0, [token])])[0] for token in tokens[:-1]])
    model.remove_sequence(0)
    expected = logprobs_of_tokens(rows, tokens[1:]).astype(np.float32)

    for budget in (7, 512):
        directory = tiny_directory("qwen3")
        with open_engine(directory, quantization, step_token_budget=budget) as engine:
            entries = score(engine, tokens, 0)
        # The logits are equal; only the order of a float64 sum differs.
        logprobs = np.array([entry.logprob for entry in entries], np.float32)
        np.testing.assert_allclose(logprobs, expected, rtol=2e-7, atol=0)


def test_completion_logprobs_equal_prompt_logprobs_bit_for_bit(
    open_tiny: OpenTiny, tiny_directory: Directory
) -> None:
    model = open_tiny("llama", "q4f16_1")
    model.add_sequence(0)
    ids = [int(model.forward([(0, PROMPT)])[0].argmax())]
    while len(ids) < 60:
        ids.append(int(model.forward([(0, ids[-1:])])[0].argmax()))
    model.remove_sequence(0)

    options: dict[str, Any] = {"temperature": 0, "logprobs": 2, "ignore_eos": True}
    with open_engine(tiny_directory("llama"), "q4f16_1", step_token_budget=16) as engine:
        completion = engine.completions.create(prompt=PROMPT, max_tokens=60, **options)
        entries = score(engine, [*PROMPT, *ids], 2)
        echoed = engine.completions.create(
            prompt=[*PROMPT, *ids], max_tokens=1, echo=True, **options
        )

    generated = logprobs_of(completion)
    assert len(generated) == 60
    assert [entry.logprob for entry in entries[len(PROMPT) - 1 :]] == generated
    assert logprobs_of(echoed)[0] is None
    assert logprobs_of(echoed)[len(PROMPT) : -1] == generated


def logprobs_of(completion: Completion) -> list[float | None]:
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    return logprobs.token_logprobs
