"""A compiled tiny model says what transformers says, however its prompt is cut."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.runtime.native.model import NativeModel
from tests.model.make_reference import PROMPT, STEPS, reference_logits
from tests.model.tiny_models import TINY_CONFIGS

OpenTiny = Callable[..., NativeModel]
REFERENCE = Path(__file__).parents[1] / "reference"

architectures = pytest.mark.parametrize("architecture", TINY_CONFIGS)


def _reference(architecture: str, quantization: str) -> tuple[list[int], NDArray[np.float32]]:
    with np.load(REFERENCE / f"{architecture}_{quantization}.npz") as stored:
        return stored["tokens"].tolist(), stored["logits"]


def _forced(model: NativeModel, tokens: list[int], chunks: list[int]) -> NDArray[np.float32]:
    """The logits `[len(tokens), vocab]` that precede each of `tokens`, which are fed back one by
    one after a prompt that is prefilled in `chunks`."""
    model.add_sequence(0)
    rows = []
    start = 0
    for size in chunks:
        logits = model.forward([(0, PROMPT[start : start + size])])
        start += size
    rows.append(logits[0])
    rows.extend(model.forward([(0, [token])])[0] for token in tokens[:-1])
    model.remove_sequence(0)
    return np.stack(rows)


def _check_float32(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    assert np.abs(ours - theirs).max() <= 2e-4


def _check_quantized(
    ours: NDArray[np.float32], theirs: NDArray[np.float32], tokens: list[int]
) -> None:
    limit = 2e-2 * (theirs.max() - theirs.min())
    top = np.sort(theirs, axis=1)
    clear = top[:, -1] - top[:, -2] > limit

    assert np.abs(ours - theirs).max() <= limit
    assert clear.sum() > STEPS // 4
    assert (ours.argmax(1) == np.array(tokens))[clear].all()


@architectures
def test_float32_logits_equal_transformers(open_tiny: OpenTiny, architecture: str) -> None:
    tokens, theirs = _reference(architecture, "q0f32")

    ours = _forced(open_tiny(architecture, "q0f32"), tokens, [len(PROMPT)])

    _check_float32(ours, theirs)
    assert ours.argmax(1).tolist() == tokens


@architectures
def test_quantized_logits_equal_transformers_on_the_dequantized_weights(
    open_tiny: OpenTiny, architecture: str
) -> None:
    tokens, theirs = _reference(architecture, "q4f16_1")

    ours = _forced(open_tiny(architecture, "q4f16_1"), tokens, [len(PROMPT)])

    _check_quantized(ours, theirs, tokens)


@architectures
@pytest.mark.parametrize("quantization", ["q0f32", "q0bf16", "q4f16_1"])
def test_the_cut_of_a_prompt_does_not_change_a_bit(
    open_tiny: OpenTiny, architecture: str, quantization: str
) -> None:
    model = open_tiny(architecture, quantization)
    tokens, _ = _reference(architecture, "q0f32")

    whole = _forced(model, tokens[:8], [len(PROMPT)])
    for chunks in ([1] * len(PROMPT), [16, 16, 8], [7, 20, 1, 12], [39, 1]):
        np.testing.assert_array_equal(_forced(model, tokens[:8], chunks), whole)


@architectures
@pytest.mark.parametrize("quantization", ["q0f32", "q4f16_1"])
def test_neighbours_do_not_change_a_bit(
    open_tiny: OpenTiny, architecture: str, quantization: str
) -> None:
    model = open_tiny(architecture, quantization)
    prompts = [PROMPT[:n] for n in (3, 40, 17, 1, 33)]
    alone = []
    for sequence_id, prompt in enumerate(prompts):
        model.add_sequence(sequence_id)
        alone.append(model.forward([(sequence_id, prompt)])[0])
        model.remove_sequence(sequence_id)

    for sequence_id in range(len(prompts)):
        model.add_sequence(sequence_id)
    first = model.forward([(i, prompt[:1]) for i, prompt in enumerate(prompts)])
    rest = model.forward([(i, prompt[1:]) for i, prompt in enumerate(prompts) if len(prompt) > 1])

    for sequence_id in range(len(prompts)):
        model.remove_sequence(sequence_id)

    together = [rest[0], rest[1], rest[2], first[3], rest[3]]
    for mine, others in zip(alone, together, strict=True):
        np.testing.assert_array_equal(mine, others)


@architectures
def test_bfloat16_weights_stay_close(open_tiny: OpenTiny, architecture: str) -> None:
    tokens, theirs = _reference(architecture, "q0f32")

    ours = _forced(open_tiny(architecture, "q0bf16"), tokens, [len(PROMPT)])

    assert np.abs(ours - theirs).max() <= 2e-2 * (theirs.max() - theirs.min())


@architectures
def test_removed_sequences_give_their_pages_back(open_tiny: OpenTiny, architecture: str) -> None:
    model = open_tiny(architecture, "q0f32")
    before = model.free_pages()

    model.add_sequence(0)
    model.forward([(0, PROMPT)])
    during = model.free_pages()
    model.remove_sequence(0)

    assert before - during == 3  # 40 tokens in pages of 16.
    assert model.free_pages() == before


@architectures
@pytest.mark.parametrize("quantized", [False, True])
def test_stored_references_are_what_transformers_says(architecture: str, quantized: bool) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    tokens, theirs = _reference(architecture, "q4f16_1" if quantized else "q0f32")

    live_tokens, live = reference_logits(architecture, quantized=quantized)

    assert live_tokens.tolist() == tokens
    np.testing.assert_allclose(live, theirs, atol=1e-4)
