"""Models with sliding windows: which tokens they see, alone and with every engine feature."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig
from aiomlc.runtime.native.model import NativeModel
from benchmarks.native_model import open_native_model
from tests.model.families.engine_features import check_output_of_each_alone, mixed_requests
from tests.model.tiny_models import TINY_CONFIGS, write_model

Logits = NDArray[np.float32]
Open = Callable[..., NativeModel]

WINDOW = 24
RECEPTIVE_FIELD = TINY_CONFIGS["mistral_window"]["num_hidden_layers"] * (WINDOW - 1)
TOKENS = [(5 * i * i + 11 * i) % 256 for i in range(RECEPTIVE_FIELD + 40)]
LAST = len(TOKENS) - 1


@pytest.fixture
def open_mistral(model_cache: Path, tmp_path: Path) -> Open:
    """Return a function that opens the tiny Mistral with changes of its config and the engine's."""

    def open_one(changes: dict[str, Any], **options: Any) -> NativeModel:  # noqa: ANN401
        path = write_model(tmp_path / "model", "mistral_window")
        values = json.loads((path / "config.json").read_text()) | changes
        (path / "config.json").write_text(json.dumps(values))
        config = EngineConfig(quantization="q0f32", num_threads=2, **options)
        opened = open_native_model(path, config)
        return opened.native

    return open_one


def _logits(model: NativeModel, changed: int | None = None) -> Logits:
    tokens = [(token + (i == changed)) % 256 for i, token in enumerate(TOKENS)]
    model.add_sequence(0)
    logits: Logits = model.forward([(0, tokens)])[0]
    model.remove_sequence(0)
    return logits


def test_a_token_outside_of_the_receptive_field_is_invisible(open_mistral: Open) -> None:
    model = open_mistral({})

    logits = _logits(model)

    np.testing.assert_array_equal(_logits(model, LAST - RECEPTIVE_FIELD - 1), logits)
    np.testing.assert_array_equal(_logits(model, 0), logits)
    assert (_logits(model, LAST - RECEPTIVE_FIELD) != logits).any()


def test_attention_sinks_stay_visible(open_mistral: Open) -> None:
    model = open_mistral({"attention_sink_size": 3})

    logits = _logits(model)

    for sink in range(3):
        assert (_logits(model, sink) != logits).any()
    for invisible in (3, LAST - RECEPTIVE_FIELD - 1):
        np.testing.assert_array_equal(_logits(model, invisible), logits)


@pytest.mark.parametrize("sinks", [0, 3])
def test_a_window_of_the_engine_config_equals_one_of_the_model(
    open_mistral: Open, sinks: int
) -> None:
    expected = _logits(open_mistral({"attention_sink_size": sinks}))

    actual = _logits(
        open_mistral(
            {"sliding_window": None}, sliding_window_size=WINDOW, attention_sink_size=sinks
        )
    )

    np.testing.assert_array_equal(actual, expected)


def test_the_engine_config_can_remove_the_window(open_mistral: Open) -> None:
    expected = _logits(open_mistral({"sliding_window": None}))

    np.testing.assert_array_equal(_logits(open_mistral({}, sliding_window_size=-1)), expected)


@pytest.mark.parametrize("size", [None, -1])
def test_sinks_without_a_window_are_rejected(open_mistral: Open, size: int | None) -> None:
    with pytest.raises(BadRequestError, match="without a sliding window") as caught:
        open_mistral({"sliding_window": None}, sliding_window_size=size, attention_sink_size=4)

    assert caught.value.param == "attention_sink_size"


# ---- The engine ----


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"step_token_budget": 7, "max_num_sequence": 4},
        {"max_total_sequence_length": 640, "prefix_cache_max_num_recycling_seqs": 5},
        {"speculative_mode": "prompt_lookup", "spec_draft_length": 9},
    ],
)
async def test_engine_features_do_not_change_the_output_of_a_windowed_model(
    model_cache: Path, tiny_directory: Callable[[str], Path], options: dict[str, Any]
) -> None:
    def open_engine(**more: Any) -> AsyncMLCEngine:  # noqa: ANN401
        config = EngineConfig(quantization="q4f16_1", num_threads=2, attention_sink_size=3, **more)
        return AsyncMLCEngine(tiny_directory("mistral_window"), engine_config=config)

    requests = mixed_requests(60)
    statistics = await check_output_of_each_alone(open_engine, requests + requests, options)

    assert statistics.prefix_cache_hits > 0
    if "speculative_mode" in options:  # Some drafts are accepted, others are rejected.
        assert statistics.draft_tokens > statistics.accepted_tokens > 0
