"""Models with sliding windows: what they see, and that nothing else of the engine notices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from anyio import create_task_group
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import open_native
from aiomlc.runtime.native.model import NativeModel
from tests.model.tiny_models import TINY_CONFIGS, write_model

Logits = NDArray[np.float32]
Open = Callable[..., NativeModel]

WINDOW = 24
REACH = TINY_CONFIGS["mistral_window"]["num_hidden_layers"] * (WINDOW - 1)
TOKENS = [(5 * i * i + 11 * i) % 256 for i in range(REACH + 40)]
LAST = len(TOKENS) - 1


@pytest.fixture
def open_mistral(model_cache: Path, tmp_path: Path) -> Open:
    """Open the tiny Mistral with some fields of its config changed, and some of the engine's."""

    def open_one(changes: dict[str, Any], **options: Any) -> NativeModel:  # noqa: ANN401
        path = write_model(tmp_path / "model", "mistral_window")
        values = json.loads((path / "config.json").read_text()) | changes
        (path / "config.json").write_text(json.dumps(values))
        config = EngineConfig(quantization="q0f32", num_threads=2, **options)
        directory = find_model(path)
        opened = anyio.run(open_native, directory, "auto", "local", config, lambda progress: None)
        return opened.native

    return open_one


def _logits(model: NativeModel, changed: int | None = None) -> Logits:
    tokens = [(token + (i == changed)) % 256 for i, token in enumerate(TOKENS)]
    model.add_sequence(0)
    logits: Logits = model.forward([(0, tokens)])[0]
    model.remove_sequence(0)
    return logits


def test_a_token_is_out_of_sight_where_no_layer_reaches_it(open_mistral: Open) -> None:
    model = open_mistral({})

    logits = _logits(model)

    np.testing.assert_array_equal(_logits(model, LAST - REACH - 1), logits)
    np.testing.assert_array_equal(_logits(model, 0), logits)
    assert (_logits(model, LAST - REACH) != logits).any()


def test_a_sink_is_never_out_of_sight(open_mistral: Open) -> None:
    model = open_mistral({"attention_sink_size": 3})

    logits = _logits(model)

    for sink in range(3):
        assert (_logits(model, sink) != logits).any()
    for hidden in (3, LAST - REACH - 1):
        np.testing.assert_array_equal(_logits(model, hidden), logits)


@pytest.mark.parametrize("sinks", [0, 3])
def test_the_engines_window_has_the_bits_of_the_models(open_mistral: Open, sinks: int) -> None:
    own = _logits(open_mistral({"attention_sink_size": sinks}))

    engines = _logits(
        open_mistral(
            {"sliding_window": None}, sliding_window_size=WINDOW, attention_sink_size=sinks
        )
    )

    np.testing.assert_array_equal(engines, own)


def test_the_engine_can_open_a_model_without_its_window(open_mistral: Open) -> None:
    none = _logits(open_mistral({"sliding_window": None}))

    np.testing.assert_array_equal(_logits(open_mistral({}, sliding_window_size=-1)), none)


@pytest.mark.parametrize("size", [None, -1])
def test_sinks_without_a_window_are_refused(open_mistral: Open, size: int | None) -> None:
    with pytest.raises(BadRequestError, match="no sliding window") as caught:
        open_mistral({"sliding_window": None}, sliding_window_size=size, attention_sink_size=4)

    assert caught.value.param == "attention_sink_size"


# ---- The engine ----

# Prompts of 30 to 130 tokens that begin alike, and repeat themselves so that guesses come true.
PROMPTS = [("The fox and the crow. " * 6)[: 20 * i] for i in range(1, 7)]


def _requests() -> list[dict[str, Any]]:
    options: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 1.1, "seed": 5}]
    once = [
        {"messages": [{"role": "user", "content": text}], "max_tokens": 60} | option
        for text in PROMPTS
        for option in options
    ]
    return once + once


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"step_token_budget": 7, "max_num_sequence": 4},
        {"max_total_sequence_length": 640, "prefix_cache_max_num_recycling_seqs": 5},
        {"speculative_mode": "prompt_lookup", "spec_draft_length": 9},
    ],
)
async def test_nothing_of_the_engine_changes_what_a_windowed_model_says(
    model_cache: Path, tiny_directory: Callable[[str], Path], options: dict[str, Any]
) -> None:
    requests = _requests()
    together: list[str | None] = [None] * len(requests)

    def open_engine(**more: Any) -> AsyncMLCEngine:  # noqa: ANN401
        config = EngineConfig(quantization="q4f16_1", num_threads=2, attention_sink_size=3, **more)
        return AsyncMLCEngine(tiny_directory("mistral_window"), engine_config=config)

    async def fetch(engine: AsyncMLCEngine, index: int) -> None:
        answer = await engine.chat.completions.create(**requests[index])
        together[index] = answer.choices[0].message.content

    async with open_engine(prefix_cache_mode="disable", max_num_sequence=1) as engine:
        answers = [await engine.chat.completions.create(**request) for request in requests]
    async with open_engine(**options) as engine:
        async with create_task_group() as tasks:
            for index in range(len(requests)):
                tasks.start_soon(fetch, engine, index)
        statistics = engine.statistics()

    assert together == [answer.choices[0].message.content for answer in answers]
    assert statistics.prefix_cache_hits > 0
    if "speculative_mode" in options:  # Some guesses stay, others are taken back.
        assert statistics.draft_tokens > statistics.accepted_tokens > 0
    assert statistics.free_pages == statistics.total_pages
