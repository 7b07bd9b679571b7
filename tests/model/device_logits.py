"""Checks of the logits of a back end of TVM, whatever its device is."""

from __future__ import annotations

__all__ = (
    "PARITY_CASES",
    "QUESTIONS",
    "check_batch",
    "check_forks",
    "check_logits",
    "check_storage",
    "largest_error",
)

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from aiomlc.runtime.native.model import NativeModel
from tests.model.families.test_logits import logits_of, reference
from tests.model.make_reference import PROMPT
from tests.model.tiny_models import TINY_CONFIGS

OpenTiny = Callable[..., NativeModel]

QUESTIONS = ("What is the capital of France?", "12+30=?", "Hello!", "Name a color.")
#: The models whose logits are compared with those of transformers, with their quantizations.
PARITY_CASES: Final = (
    *((architecture, "q0f32") for architecture in TINY_CONFIGS),
    *((architecture, "q4f16_1") for architecture in ("llama", "gemma3_text", "qwen3_moe")),
    ("gpt_oss", "q4f16_1"),
)
_TOKENS = [(7 * i * i + 3 * i) % 256 for i in range(80)]


def check_logits(
    model: NativeModel, architecture: str, quantization: str, tolerance: float
) -> None:
    """Require the logits and the tokens of transformers, with the prompt whole and in chunks."""
    tokens, _ = reference(architecture, quantization)

    assert largest_error(model, architecture, quantization) <= tolerance
    assert logits_of(model, tokens, [len(PROMPT)]).argmax(1).tolist() == tokens


def largest_error(model: NativeModel, architecture: str, quantization: str) -> float:
    """Return the largest difference from the logits of transformers, as `check_logits`."""
    tokens, expected = reference(architecture, quantization)
    chunkings = ([len(PROMPT)], [5, len(PROMPT) - 5])
    actual = np.stack([logits_of(model, tokens, chunks) for chunks in chunkings])
    return float(np.abs(actual - expected).max())


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
