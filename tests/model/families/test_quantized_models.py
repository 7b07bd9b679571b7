"""Logits of quantized checkpoints equal those of float32 models with the weights that they mean."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.runtime.native.model import NativeModel
from benchmarks.native_model import open_native_model
from tests.model.make_int8_reference import REFERENCE, int8_reference_logits
from tests.model.make_reference import PROMPT
from tests.model.quantized_files import QUANTIZERS
from tests.model.quantized_models import write_dequantized, write_quantized

STEPS = 24


def open_model(directory: Path, quantization: str | None = None) -> NativeModel:
    config = EngineConfig(quantization=quantization, num_threads=2)
    opened = open_native_model(directory, config)
    return opened.native


def logits(model: NativeModel, tokens: list[int]) -> NDArray[np.float32]:
    """Return the logits `[STEPS, vocab]` after the prompt and after each token, or of greedy ones.

    The tokens that were chosen are appended to `tokens` if it is empty.
    """
    model.add_sequence(0)
    rows = [model.forward([(0, PROMPT)])[0].copy()]
    is_greedy = not tokens
    for step in range(STEPS - 1):
        if is_greedy:
            tokens.append(int(rows[-1].argmax()))
        rows.append(model.forward([(0, [tokens[step]])])[0].copy())
    model.remove_sequence(0)
    return np.stack(rows)


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("name", QUANTIZERS)
def test_logits_are_those_of_the_dequantized_weights(tmp_path: Path, name: str) -> None:
    weights = write_quantized(tmp_path / "quantized", QUANTIZERS[name])
    write_dequantized(tmp_path / "float32", weights)
    tokens: list[int] = []
    expected = logits(open_model(tmp_path / "float32", "q0f32"), tokens)

    actual = logits(open_model(tmp_path / "quantized"), tokens)

    limit = 2e-2 * (expected.max() - expected.min())  # Activations are rounded to 8 bits.
    assert np.abs(actual - expected).max() <= limit


@pytest.mark.usefixtures("model_cache")
def test_w8a8_logits_equal_transformers_with_rounded_activations(tmp_path: Path) -> None:
    write_quantized(tmp_path / "model", QUANTIZERS["w8a8"])
    with np.load(REFERENCE) as stored:
        tokens, expected = stored["tokens"].tolist(), stored["logits"]

    actual = logits(open_model(tmp_path / "model"), tokens)

    # An activation near the middle of two integers may be rounded to the other one.
    error = np.abs(actual - expected).max() / (expected.max() - expected.min())
    assert error <= 1e-2


def test_the_stored_w8a8_logits_match_transformers(tmp_path: Path) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    weights = write_quantized(tmp_path / "model", QUANTIZERS["w8a8"])

    tokens, expected = int8_reference_logits(weights)

    with np.load(REFERENCE) as stored:
        assert tokens.tolist() == stored["tokens"].tolist()
        np.testing.assert_allclose(expected, stored["logits"], atol=1e-2)


@pytest.mark.usefixtures("model_cache")
def test_integers_cannot_be_opened_in_another_quantization(tmp_path: Path) -> None:
    write_quantized(tmp_path / "model", QUANTIZERS["awq_g128"])

    advice = "is quantized as awq and cannot be opened as q0f32; leave quantization out"
    with pytest.raises(BadRequestError, match=advice):
        open_model(tmp_path / "model", "q0f32")
