"""Logits of compiled tiny models equal those of transformers, however the prompt is chunked."""

from __future__ import annotations

__all__ = ("check_float32", "logits_of", "reference")

import importlib.util
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.runtime.native.model import NativeModel
from tests.model.make_reference import PROMPT, STEPS, reference_logits
from tests.model.tiny_models import DISTINCT, TINY_CONFIGS
from tests.model.transformers_defaults import DEFAULTS, Defaults

OpenTiny = Callable[..., NativeModel]
REFERENCE = Path(__file__).parents[1] / "reference"

architectures = pytest.mark.parametrize("architecture", TINY_CONFIGS)


def reference(architecture: str, quantization: str) -> tuple[list[int], NDArray[np.float32]]:
    """Return the tokens and the logits that transformers gives for a tiny model."""
    with np.load(REFERENCE / f"{architecture}_{quantization}.npz") as stored:
        return stored["tokens"].tolist(), stored["logits"]


def logits_of(model: NativeModel, tokens: list[int], chunks: list[int]) -> NDArray[np.float32]:
    """Return the logits `[len(tokens), vocab]` from which each of `tokens` is chosen.

    The prompt is prefilled in chunks of the given sizes; then the tokens are decoded one by one.
    """
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


def check_float32(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    """Require that logits differ by the rounding of float32 only."""
    assert np.abs(actual - expected).max() <= 2e-4


def _check_quantized(
    actual: NDArray[np.float32], expected: NDArray[np.float32], tokens: list[int]
) -> None:
    # Activations are rounded to 8 bits. Where two experts of a router are nearly tied, this selects
    # another one, which changes the logits of single positions by more than the limit.
    limit = 2e-2 * (expected.max() - expected.min())
    errors = np.abs(actual - expected).max(1)
    is_close = errors <= limit
    top = np.sort(expected, axis=1)
    is_clear = is_close & (top[:, -1] - top[:, -2] > limit)

    assert is_close.sum() >= STEPS - 3
    assert errors.max() <= 2 * limit
    assert is_clear.sum() > STEPS // 4
    assert (actual.argmax(1) == np.array(tokens))[is_clear].all()


@architectures
def test_float32_logits_equal_transformers(open_tiny: OpenTiny, architecture: str) -> None:
    tokens, expected = reference(architecture, "q0f32")

    actual = logits_of(open_tiny(architecture, "q0f32"), tokens, [len(PROMPT)])

    check_float32(actual, expected)
    assert actual.argmax(1).tolist() == tokens


@architectures
def test_quantized_logits_equal_transformers_on_the_dequantized_weights(
    open_tiny: OpenTiny, architecture: str
) -> None:
    tokens, expected = reference(architecture, "q4f16_1")

    actual = logits_of(open_tiny(architecture, "q4f16_1"), tokens, [len(PROMPT)])

    _check_quantized(actual, expected, tokens)


@pytest.mark.parametrize(
    ("architecture", "quantization"),
    [
        *product(TINY_CONFIGS, ("q0f32", "q4f16_1")),
        *product(DISTINCT, ("w4a8", "q8_0", "q0f16", "q0bf16")),
    ],
)
def test_chunked_prefill_does_not_change_a_bit(
    open_tiny: OpenTiny, architecture: str, quantization: str
) -> None:
    model = open_tiny(architecture, quantization)
    tokens, _ = reference(architecture, "q0f32")

    expected = logits_of(model, tokens[:8], [len(PROMPT)])
    for chunks in ([1] * len(PROMPT), [16, 16, 8], [7, 20, 1, 12], [39, 1]):
        np.testing.assert_array_equal(logits_of(model, tokens[:8], chunks), expected)


@architectures
@pytest.mark.parametrize("quantization", ["q0f32", "q4f16_1"])
def test_other_sequences_in_the_batch_do_not_change_a_bit(
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
    remaining = model.forward(
        [(i, prompt[1:]) for i, prompt in enumerate(prompts) if len(prompt) > 1]
    )

    for sequence_id in range(len(prompts)):
        model.remove_sequence(sequence_id)

    together = [remaining[0], remaining[1], remaining[2], first[3], remaining[3]]
    for expected, actual in zip(alone, together, strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("architecture", DISTINCT)
@pytest.mark.parametrize(
    ("quantization", "limit"), [("q0f16", 3e-3), ("q0bf16", 2e-2), ("q8_0", 8e-2)]
)
def test_weights_of_8_or_16_bits_stay_close(
    open_tiny: OpenTiny, architecture: str, quantization: str, limit: float
) -> None:
    tokens, expected = reference(architecture, "q0f32")

    actual = logits_of(open_tiny(architecture, quantization), tokens, [len(PROMPT)])

    assert np.abs(actual - expected).max() <= limit * (expected.max() - expected.min())


@architectures
def test_removed_sequences_free_their_pages(open_tiny: OpenTiny, architecture: str) -> None:
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
@pytest.mark.sampled(8)
def test_stored_references_match_transformers(architecture: str, quantized: bool) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    tokens, stored = reference(architecture, "q4f16_1" if quantized else "q0f32")

    live_tokens, live = reference_logits(architecture, quantized=quantized)

    assert live_tokens.tolist() == tokens
    np.testing.assert_allclose(live, stored, atol=1e-4)


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_stored_defaults_match_transformers(model_type: str) -> None:
    auto = pytest.importorskip("transformers.models.auto.configuration_auto")
    config_class = auto.CONFIG_MAPPING[model_type]
    config = config_class().to_dict()
    if "use_sliding_window" in config and model_type != "smollm3":  # It is refused for SmolLM 3.
        config = config_class(use_sliding_window=True).to_dict()
    eps_fields = ("rms_norm_eps", "layer_norm_eps", "norm_eps", "norm_epsilon")
    rope = config["rope_parameters"]

    live = Defaults(
        norm_eps=next(config[name] for name in eps_fields if name in config),
        rope_theta=rope.get("full_attention", rope)["rope_theta"],
        tie_word_embeddings=config["tie_word_embeddings"],
        sliding_window=config.get("sliding_window"),
    )

    assert live == DEFAULTS[model_type]
