"""Tests of the keyword arguments of MLC LLM's earlier releases."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    EngineConfig,
    JSONFFIEngine,
    MLCEngine,
    SyncMLCEngine,
)
from aiomlc.testing import FakeCore, fake_loader

ENGINES = (AsyncMLCEngine, MLCEngine, SyncMLCEngine, JSONFFIEngine)


def completed_config(engine_class: Any, **options: Any) -> EngineConfig:  # noqa: ANN401
    engine = engine_class(loader=fake_loader(FakeCore()), **options)
    config: EngineConfig = engine.engine_config
    engine.terminate()
    return config


@pytest.mark.parametrize("engine_class", ENGINES)
def test_legacy_options_are_fields_of_the_configuration(engine_class: type) -> None:
    config = completed_config(
        engine_class,
        max_batch_size=7,
        max_total_sequence_length=4096,
        prefill_chunk_size=256,
        max_history_size=0,
        gpu_memory_utilization=0.5,
        speculative_mode="small_draft",
        spec_draft_length=4,
        additional_models=["draft"],
        verbose=True,
    )

    assert config == EngineConfig(
        mode="local",
        max_num_sequence=7,
        max_total_sequence_length=4096,
        prefill_chunk_size=256,
        max_history_size=0,
        gpu_memory_utilization=0.5,
        speculative_mode="small_draft",
        spec_draft_length=4,
        additional_models=("draft",),
        verbose=True,
    )


def test_none_leaves_the_configuration_unchanged() -> None:
    config = EngineConfig(max_num_sequence=3)

    completed = completed_config(MLCEngine, engine_config=config, max_batch_size=None)

    assert completed.max_num_sequence == 3


def test_the_same_value_in_option_and_configuration_is_allowed() -> None:
    config = EngineConfig(max_num_sequence=3)

    assert completed_config(MLCEngine, engine_config=config, max_batch_size=3).max_num_sequence == 3


@pytest.mark.parametrize("engine_class", ENGINES)
def test_different_values_in_option_and_configuration_are_rejected(engine_class: type) -> None:
    with pytest.raises(BadRequestError, match=r'"max_batch_size" .* is "4".* is "3"') as caught:
        completed_config(
            engine_class, engine_config=EngineConfig(max_num_sequence=3), max_batch_size=4
        )

    assert caught.value.param == "max_batch_size"


@pytest.mark.parametrize("engine_class", ENGINES)
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("max_batch_size", 0, "max_batch_size must be >= 1, got 0"),
        ("prefill_chunk_size", "x", "prefill_chunk_size must be an integer, got 'x'"),
        ("gpu_memory_utilization", 2, "gpu_memory_utilization must be <= 1.0, got 2"),
        (
            "speculative_mode",
            "eagle",
            "speculative_mode = 'eagle' is not supported yet: use prompt_lookup or small_draft",
        ),
        ("mode", "fast", "mode must be one of 'local', 'interactive', 'server', got 'fast'"),
        ("mode", None, "mode must be one of 'local', 'interactive', 'server', got None"),
    ],
)
def test_an_invalid_value_is_rejected_under_the_name_of_the_argument(
    engine_class: type, option: str, value: object, message: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        completed_config(engine_class, **{option: value})

    assert (str(caught.value), caught.value.param) == (message, option)


@pytest.mark.parametrize("models", ["abc", "a", 3, {"a": "b"}])
def test_additional_models_must_be_a_list(models: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError, match=r"additional_models must be a list, got ") as caught:
        completed_config(MLCEngine, additional_models=models)

    assert caught.value.param == "additional_models"


@pytest.mark.parametrize("engine_class", ENGINES)
def test_an_unknown_keyword_is_rejected(engine_class: type) -> None:
    with pytest.raises(TypeError, match="unknown keyword argument 'max_batch'"):
        completed_config(engine_class, max_batch=4)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("quantization", "a field of EngineConfig: engine_config=EngineConfig(quantization=...)"),
        ("temperature", "a parameter of requests: chat.completions.create(..., temperature=...)"),
        ("max_batch", "did you mean max_batch_size?"),
        ("n_ctx", "EngineConfig: engine_config=EngineConfig(max_single_sequence_length=...)"),
        ("devices", "did you mean device?"),
    ],
)
def test_the_error_says_where_a_keyword_belongs(option: str, hint: str) -> None:
    with pytest.raises(TypeError, match=re.escape(hint)):
        completed_config(AsyncMLCEngine, **{option: 1})
