"""Wrong types of constructor arguments and configuration fields are rejected by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from aiomlc import (
    AsyncMLCEngine,
    EngineConfig,
    GenerationConfig,
    JSONFFIEngine,
    MLCEngine,
    SyncMLCEngine,
)
from aiomlc.testing import fake_loader
from tests.unit.api.protocol.wrong_values import (
    NOT_BOOLEANS,
    NOT_FUNCTIONS,
    NOT_NUMBERS,
    NOT_STRINGS,
    ODD,
    rejected,
)

pytestmark = pytest.mark.timeout(60)
ENGINES: tuple[Callable[..., Any], ...] = (AsyncMLCEngine, MLCEngine, SyncMLCEngine, JSONFFIEngine)


CONSTRUCTOR_ARGUMENTS: list[tuple[str, list[Any]]] = [
    ("model", [5, b"a", ["a"], ODD]),
    ("model_lib", [5, b"a", ["a"], ODD]),
    ("device", [5, None, ["cpu"], ODD]),
    ("mode", [5, ["local"], {"a": 1}, ODD, "quick"]),
    ("engine_config", [5, 0, {}, {"model": "a"}, "a", ODD]),
    ("on_progress", NOT_FUNCTIONS),
    ("loader", NOT_FUNCTIONS),
    ("max_batch_size", NOT_NUMBERS),
    ("max_total_sequence_length", NOT_NUMBERS),
    ("prefill_chunk_size", NOT_NUMBERS),
    ("max_history_size", NOT_NUMBERS),
    ("gpu_memory_utilization", NOT_NUMBERS),
    ("speculative_mode", [5, ["disable"], ODD]),
    ("spec_draft_length", NOT_NUMBERS),
    ("additional_models", [5, "a", {"a": "b"}, [5], ODD]),
    ("verbose", NOT_BOOLEANS),
]
CASES = [
    (engine, name, value)
    for engine in ENGINES
    for name, values in CONSTRUCTOR_ARGUMENTS
    for value in values
]


@pytest.mark.parametrize(("engine", "name", "value"), CASES)
def test_constructors_name_the_wrong_argument(
    engine: Callable[..., Any], name: str, value: object
) -> None:
    arguments = {"loader": fake_loader(), name: value}

    assert rejected(lambda: engine(**arguments)).param == name


@pytest.mark.parametrize("engine", ENGINES[:3])
@pytest.mark.parametrize("value", NOT_BOOLEANS)
def test_constructors_name_enable_tracing(engine: Callable[..., Any], value: object) -> None:
    make = partial(engine, loader=fake_loader(), enable_tracing=value)
    assert rejected(make).param == "enable_tracing"


CONFIG_FIELDS: dict[str, list[Any]] = {
    "model": [5, ["a"], ODD],
    "mode": [5, ["local"], ODD],
    "quantization": [5, ["a"], ODD],
    "vision_quantization": [5, ["a"], ODD],
    "kv_cache_page_size": ["16", [16], ODD],
    "kv_cache_dtype": [None, *NOT_STRINGS],
    "max_num_sequence": NOT_NUMBERS,
    "max_total_sequence_length": NOT_NUMBERS,
    "max_single_sequence_length": NOT_NUMBERS,
    "prefill_chunk_size": NOT_NUMBERS,
    "step_token_budget": NOT_NUMBERS,
    "gpu_memory_utilization": NOT_NUMBERS,
    "num_threads": NOT_NUMBERS,
    "max_queue_size": NOT_NUMBERS,
    "max_unread_tokens": NOT_NUMBERS,
    "prefix_cache_mode": [None, *NOT_STRINGS],
    "prefix_cache_max_num_recycling_seqs": NOT_NUMBERS,
    "speculative_mode": [None, *NOT_STRINGS],
    "spec_draft_length": NOT_NUMBERS,
    "additional_models": [5, "a", {"a": "b"}, [5], ODD],
    "sliding_window_size": NOT_NUMBERS,
    "attention_sink_size": NOT_NUMBERS,
    "allowed_media_domains": [5, "a", {"a": "b"}, [5], ODD],
    "allowed_local_media_path": [5, ["a"], ODD],
    "max_images_per_prompt": [None, *NOT_NUMBERS],
    "max_image_pixels": [None, *NOT_NUMBERS],
    "max_audio_seconds": [None, *NOT_NUMBERS],
    "verbose": NOT_BOOLEANS,
    "split_special_tokens": NOT_BOOLEANS,
    "enable_tracing": NOT_BOOLEANS,
    "model_lib": [5, ["a"], ODD],
    "tensor_parallel_shards": NOT_NUMBERS,
    "pipeline_parallel_stages": NOT_NUMBERS,
    "opt": NOT_STRINGS,
    "max_history_size": NOT_NUMBERS,
    "kv_state_kind": NOT_STRINGS,
    "spec_tree_width": NOT_NUMBERS,
    "prefill_mode": NOT_STRINGS,
}


def test_every_config_field_has_wrong_values() -> None:
    assert inspect.signature(EngineConfig).parameters.keys() == CONFIG_FIELDS.keys()
    assert inspect.signature(GenerationConfig).parameters.keys() == GENERATION_FIELDS.keys()


@pytest.mark.parametrize("name", CONFIG_FIELDS)
def test_engine_config_names_the_wrong_field(name: str) -> None:
    for value in CONFIG_FIELDS[name]:
        assert rejected(partial(EngineConfig, **{name: value})).param == name


GENERATION_FIELDS: dict[str, list[Any]] = {
    "n": [None, True, 1.5, *NOT_NUMBERS],
    "temperature": [True, float("nan"), float("inf"), *NOT_NUMBERS],
    "top_p": [True, float("nan"), *NOT_NUMBERS],
    "frequency_penalty": NOT_NUMBERS,
    "presence_penalty": NOT_NUMBERS,
    "repetition_penalty": [0, float("nan"), *NOT_NUMBERS],
    "logprobs": [None, *NOT_BOOLEANS],
    "top_logprobs": [1.5, *NOT_NUMBERS],
    "logit_bias": [5, "a", [1], {"a": 1}, {-1: 1}, {1: "a"}, {1: 101}, {True: 1}, ODD],
    "max_tokens": [0, -2, True, 1.5, *NOT_NUMBERS],
    "seed": [True, 1.5, 2**63, 10**5000, *NOT_NUMBERS],
    "stop_strs": [5, b"a", [5], [b"a"], {"a": 1}, "", [""], ["\ud800"], ODD],
    "stop_token_ids": [5, "12", ["a"], [1.5], [True], [2**63], {1: 2}, ODD],
    "response_format": [5, "json", ["a"], {}, {"type": 5}, ODD],
    "debug_config": [5, {"a": 1}, ODD],
    "top_k": [1.5, *NOT_NUMBERS],
    "min_p": NOT_NUMBERS,
    "min_tokens": [-1, 1.5, *NOT_NUMBERS],
    "ignore_eos": NOT_BOOLEANS,
    "priority": [1.5, 2**63, *NOT_NUMBERS],
    "timeout": [0, -1, float("nan"), *NOT_NUMBERS],
    "first_token_timeout": [0, *NOT_NUMBERS],
    "inter_token_timeout": [0, *NOT_NUMBERS],
    "prompt_logprobs": [-1, 21, 1.5, True, *NOT_NUMBERS],
    "logits_processors": [5, print, "a", [5], {"a": print}, ODD],
}


@pytest.mark.parametrize("name", GENERATION_FIELDS)
def test_generation_config_names_the_wrong_field(name: str) -> None:
    for value in GENERATION_FIELDS[name]:
        error = rejected(partial(GenerationConfig, **{name: value}))
        assert (error.param or "").split("[")[0].split(".")[0] == name
