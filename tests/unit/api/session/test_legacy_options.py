"""The constructor's keywords of upstream's earlier releases."""

from __future__ import annotations

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


def config_of(engine_class: Any, **options: Any) -> EngineConfig:  # noqa: ANN401
    engine = engine_class(loader=fake_loader(FakeCore()), **options)
    config: EngineConfig = engine.engine_config
    engine.terminate()
    return config


@pytest.mark.parametrize("engine_class", ENGINES)
def test_they_are_fields_of_the_configuration(engine_class: type) -> None:
    config = config_of(
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


def test_none_leaves_the_configuration_as_it_is() -> None:
    given = EngineConfig(max_num_sequence=3)

    config = config_of(MLCEngine, engine_config=given, max_batch_size=None)

    assert config.max_num_sequence == 3


def test_the_same_value_twice_is_no_contradiction() -> None:
    given = EngineConfig(max_num_sequence=3)

    assert config_of(MLCEngine, engine_config=given, max_batch_size=3).max_num_sequence == 3


@pytest.mark.parametrize("engine_class", ENGINES)
def test_two_values_contradict_each_other(engine_class: type) -> None:
    with pytest.raises(BadRequestError, match=r'"max_batch_size" .* is "4".* is "3"') as caught:
        config_of(engine_class, engine_config=EngineConfig(max_num_sequence=3), max_batch_size=4)

    assert caught.value.param == "max_batch_size"


def test_a_value_is_checked_as_in_the_configuration() -> None:
    with pytest.raises(BadRequestError, match=r"max_batch_size: .*max_num_sequence") as caught:
        config_of(MLCEngine, max_batch_size=0)

    assert caught.value.param == "max_batch_size"


@pytest.mark.parametrize("models", ["abc", "a", 3, {"a": "b"}])
def test_models_are_a_list_and_a_text_is_none(models: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError, match=r"additional_models must be a list, got ") as caught:
        config_of(MLCEngine, additional_models=models)

    assert caught.value.param == "additional_models"


@pytest.mark.parametrize("engine_class", ENGINES)
def test_any_other_keyword_is_unknown(engine_class: type) -> None:
    with pytest.raises(TypeError, match="no keyword argument 'max_batch'"):
        config_of(engine_class, max_batch=4)
