"""Checks of the logits of a back end of TVM, whatever its device is."""

from __future__ import annotations

__all__ = ("QUESTIONS", "check_batch", "check_forks", "check_logits", "check_storage")

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aiomlc.runtime.native.model import NativeModel
from tests.model.families.test_logits import logits_of, reference
from tests.model.make_reference import PROMPT

OpenTiny = Callable[..., NativeModel]

QUESTIONS = ("What is the capital of France?", "12+30=?", "Hello!", "Name a color.")
_TOKENS = [(7 * i * i + 3 * i) % 256 for i in range(80)]


def check_logits(
    model: NativeModel, architecture: str, quantization: str, tolerance: float
) -> None:
    """Require the logits and the tokens of transformers, with the prompt whole and in chunks."""
    tokens, expected = reference(architecture, quantization)

    actual = logits_of(model, tokens, [len(PROMPT)])
    chunked = logits_of(model, tokens, [5, len(PROMPT) - 5])

    assert np.abs(actual - expected).max() <= tolerance
    assert np.abs(chunked - expected).max() <= tolerance
    assert actual.argmax(1).tolist() == tokens


def check_storage(
    open_tiny: OpenTiny, architecture: str, kv_cache_dtype: str, device: str, tolerance: float
) -> None:
    """Require that keys and values are rounded as on the CPU."""
    tokens, _ = reference(architecture, "q0f32")
    chunks = [5, len(PROMPT) - 5]
    native = logits_of(open_tiny(architecture, "q0f32", kv_cache_dtype, "cpu"), tokens, chunks)

    actual = logits_of(open_tiny(architecture, "q0f32", kv_cache_dtype, device), tokens, chunks)

    assert np.abs(actual - native).max() <= tolerance


def check_batch(model: NativeModel, tolerance: float) -> None:
    """Require that the sequences of a batch have the logits that they have alone."""
    prompts = [_TOKENS[:37], _TOKENS[5:14], _TOKENS[9:10], _TOKENS[20:53]]

    def run(ids: Sequence[int]) -> list[np.ndarray[Any, Any]]:
        for i in ids:
            model.add_sequence(i)
        prefill = model.forward([(i, prompts[i]) for i in ids])
        mixed = model.forward([(i, _TOKENS[: 1 + i]) for i in ids])
        decode = model.forward([(i, [7]) for i in ids])
        for i in ids:
            model.remove_sequence(i)
        return [prefill, mixed, decode]

    batched = run(range(4))

    for i in range(4):
        for alone, together in zip(run([i]), batched, strict=True):
            assert np.abs(alone[0] - together[i]).max() <= tolerance


def check_forks(model: NativeModel, tolerance: float) -> None:
    """Require that a fork at any position continues its prefix, and gives its pages back."""
    free = model.free_pages()
    model.add_sequence(0)
    expected = model.forward([(0, _TOKENS)])[0]
    model.remove_sequence(0)
    model.add_sequence(0)
    model.forward([(0, _TOKENS[:50])])

    for position in (1, 15, 16, 17, 32, 49, 50):
        model.fork_sequence(0, 1, position)
        actual = model.forward([(1, _TOKENS[position:])])[0]
        model.remove_sequence(1)
        assert np.abs(actual - expected).max() <= tolerance
    model.remove_sequence(0)

    assert model.free_pages() == free
