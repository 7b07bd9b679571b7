"""Tests of the engine configuration and of the serving limits."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc.compiler.quantization import QUANTIZATIONS
from aiomlc.config import QUANTIZATION_NAMES, EngineConfig, Mode
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.models.config.quantization import MLC_QUANTIZATIONS, QUANTIZATION_METHODS
from aiomlc.runtime.loading.capacity import check_encoder, serving_limits

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("additional_models", ("draft",)),
        ("pipeline_parallel_stages", 2),
        ("opt", "O3"),
        ("kv_state_kind", "rnn_state"),
        ("speculative_mode", "eagle"),
        ("speculative_mode", "medusa"),
        ("spec_tree_width", 2),
    ],
)
def test_unsupported_field_is_rejected_by_name(name: str, value: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError, match=f"engine_config.{name} = .* not supported") as caught:
        EngineConfig(**{name: value})

    assert caught.value.param == name


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("speculative_mode", {"speculative_mode": "unknown"}),
        ("spec_draft_length", {"spec_draft_length": 3}),
        (
            "additional_models",
            {"speculative_mode": "small_draft", "additional_models": ("one", "two")},
        ),
        ("additional_models", {"speculative_mode": "prompt_lookup", "additional_models": ("one",)}),
        ("spec_draft_length", {"speculative_mode": "prompt_lookup", "spec_draft_length": -1}),
        ("spec_draft_length", {"speculative_mode": "prompt_lookup", "spec_draft_length": 1.5}),
    ],
)
def test_contradictory_speculation_fields_are_rejected_by_name(
    name: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(BadRequestError, match=name) as caught:
        EngineConfig(**fields)

    assert caught.value.param == name


def test_the_draft_length_of_mlc_llms_earlier_constructors_needs_no_speculation() -> None:
    assert EngineConfig(speculative_mode="disable", spec_draft_length=4).spec_draft_length == 4


@pytest.mark.parametrize(
    ("model", "draft"),
    [
        (None, None),
        ("draft", ("draft", None)),
        ("draft:draft/lib.so", ("draft", "draft/lib.so")),
        ("C:/draft:lib.DLL", ("C:/draft", "lib.DLL")),
        (("draft", "lib.tar"), ("draft", "lib.tar")),
        ("HF://user/draft", ("HF://user/draft", None)),
        ("hf://user/draft@main:x.gguf", ("hf://user/draft@main:x.gguf", None)),
        (":lib.so", (":lib.so", None)),
    ],
)
def test_a_draft_model_may_have_a_library(
    model: str | tuple[str, str] | None, draft: tuple[str, str | None] | None
) -> None:
    models = () if model is None else (model,)

    assert EngineConfig(speculative_mode="small_draft", additional_models=models).draft_model == (
        draft
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("pipeline_parallel_stages", 1), ("max_history_size", 0), ("kv_state_kind", "kv_cache")],
)
def test_neutral_value_of_an_unsupported_field_is_accepted(name: str, value: Any) -> None:  # noqa: ANN401
    assert getattr(EngineConfig(**{name: value}), name) == value


@pytest.mark.parametrize(
    "name",
    [
        "max_num_sequence",
        "max_total_sequence_length",
        "max_single_sequence_length",
        "prefill_chunk_size",
        "num_threads",
        "step_token_budget",
    ],
)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_count_must_be_a_positive_integer(name: str, value: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError, match=f"engine_config.{name}") as caught:
        EngineConfig(**{name: value})

    assert caught.value.param == name


@pytest.mark.parametrize("value", [1025, 100_000, 2**40])
def test_num_threads_is_limited(value: int) -> None:
    with pytest.raises(BadRequestError, match=r"engine_config.num_threads .*\[1, 1024\]"):
        EngineConfig(num_threads=value)


@pytest.mark.parametrize("value", ["int2", "fp8", "", None, 8])
def test_unknown_kv_cache_dtype_is_rejected(value: Any) -> None:  # noqa: ANN401
    with pytest.raises(
        BadRequestError,
        match="must be one of 'auto', 'float16', 'bfloat16', 'float32', 'int8', 'int4', got",
    ) as caught:
        EngineConfig(kv_cache_dtype=value)

    assert caught.value.param == "kv_cache_dtype"


@pytest.mark.parametrize("value", ["int4", "q4f16_ft", "q4", "u4g32", "", 4])
def test_unknown_quantization_is_rejected(value: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError) as caught:
        EngineConfig(quantization=value)

    assert str(caught.value).startswith("engine_config.quantization must be one of 'q4f16_1', ")
    assert str(caught.value).endswith(f", got {value!r}")
    assert caught.value.param == "quantization"


def test_every_quantization_that_a_model_may_have_can_be_requested() -> None:
    methods = {"fp8" if method == "fbgemm_fp8" else method for method in QUANTIZATION_METHODS}
    names = {*QUANTIZATIONS, *MLC_QUANTIZATIONS, *methods, "gguf"}

    assert {EngineConfig(quantization=name).quantization for name in names} == names
    assert set(QUANTIZATION_NAMES) == names


@pytest.mark.parametrize("name", ["sliding_window_size", "attention_sink_size"])
@pytest.mark.parametrize("value", [-2, 1.5, True, "3"])
def test_window_must_be_an_integer_of_at_least_minus_one(name: str, value: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError, match=f"engine_config.{name} must be") as caught:
        EngineConfig(**{name: value})

    assert caught.value.param == name


def test_other_page_size_raises_mlc_llms_message() -> None:
    with pytest.raises(ValueError, match="page size") as caught:
        EngineConfig(kv_cache_page_size=32)

    assert str(caught.value) == (
        'KV cache only supports page size 16, while the "kv_cache_page_size" field in argument '
        '"engine_config" is "32". Please set "engine_config.kv_cache_page_size" to 16.'
    )


def test_json_round_trips() -> None:
    config = EngineConfig(model="m", mode="server", num_threads=2, max_num_sequence=7)

    assert EngineConfig.from_json(config.asjson()) == config


@pytest.mark.parametrize(
    ("text", "param"), [("{", None), ("[]", None), ('{"thraeds": 1}', "thraeds")]
)
def test_invalid_json_config_is_rejected(text: str, param: str | None) -> None:
    with pytest.raises(BadRequestError) as caught:
        EngineConfig.from_json(text)

    assert caught.value.param == param


@pytest.mark.parametrize(
    ("mode", "rows", "tokens"),
    [("local", 32, 16384), ("interactive", 1, 2048), ("server", 128, 128 * 2048)],
)
def test_mode_determines_rows_and_tokens(mode: Mode, rows: int, tokens: int) -> None:
    limits = serving_limits(
        EngineConfig(),
        mode=mode,
        context_window=2048,
        kv_bytes_per_token=1000,
        memory_bytes=GIB,
    )

    assert (limits.max_batch_size, limits.max_total_tokens) == (rows, tokens)
    assert limits.context_window == 2048


def test_config_overrides_the_mode() -> None:
    config = EngineConfig(
        max_num_sequence=3,
        max_total_sequence_length=1000,
        max_single_sequence_length=500,
        prefill_chunk_size=64,
        step_token_budget=32,
    )

    limits = serving_limits(
        config, mode="server", context_window=2048, kv_bytes_per_token=1000, memory_bytes=GIB
    )

    assert (limits.max_batch_size, limits.max_total_tokens) == (3, 1008)
    assert (limits.context_window, limits.prefill_chunk_size) == (500, 64)
    assert limits.step_token_budget == 32


@pytest.mark.parametrize(
    ("config", "max_recycling"),
    [
        (EngineConfig(), 32),
        (EngineConfig(max_num_sequence=3), 3),
        (EngineConfig(prefix_cache_max_num_recycling_seqs=-1), -1),
        (EngineConfig(prefix_cache_max_num_recycling_seqs=0), 0),
        (EngineConfig(prefix_cache_mode="disable", prefix_cache_max_num_recycling_seqs=9), 0),
    ],
)
def test_prefix_cache_keeps_max_num_sequence_sequences_by_default(
    config: EngineConfig, max_recycling: int
) -> None:
    limits = serving_limits(
        config, mode="local", context_window=2048, kv_bytes_per_token=1000, memory_bytes=GIB
    )

    assert limits.max_recycling_sequences == max_recycling


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prefix_cache_mode", "tree"),
        ("prefix_cache_max_num_recycling_seqs", -2),
        ("prefix_cache_max_num_recycling_seqs", True),
    ],
)
def test_invalid_prefix_cache_field_is_rejected(name: str, value: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError, match=f"{name} must be .*, got {value!r}") as caught:
        EngineConfig(**{name: value})

    assert caught.value.param == name


def test_memory_limits_the_tokens_and_the_context() -> None:
    limits = serving_limits(
        EngineConfig(),
        mode="local",
        context_window=2048,
        kv_bytes_per_token=10,
        memory_bytes=10_000,
    )

    assert (limits.max_total_tokens, limits.context_window) == (992, 992)


@pytest.mark.parametrize(
    ("config", "memory"), [(EngineConfig(), 100), (EngineConfig(max_total_sequence_length=64), 600)]
)
def test_insufficient_memory_is_rejected(config: EngineConfig, memory: int) -> None:
    with pytest.raises(ModelLoadError, match="the KV cache needs"):
        serving_limits(
            config, mode="local", context_window=2048, kv_bytes_per_token=10, memory_bytes=memory
        )


def test_prefill_chunk_must_hold_a_token_of_every_row() -> None:
    with pytest.raises(
        BadRequestError, match=r"max_num_sequence must be <= prefill_chunk_size \(8\), got 32"
    ):
        serving_limits(
            EngineConfig(max_num_sequence=32, prefill_chunk_size=8),
            mode="local",
            context_window=2048,
            kv_bytes_per_token=10,
            memory_bytes=GIB,
        )


# A value of each setting that an encoder refuses by name.
_REFUSED_BY_ENCODERS: dict[str, Any] = {
    "attention_sink_size": 4,
    "gpu_memory_utilization": 0.5,
    "kv_cache_dtype": "int8",
    "max_history_size": 1,
    "max_num_sequence": 4,
    "max_queue_size": None,
    "max_total_sequence_length": 64,
    "max_unread_tokens": 8,
    "prefill_chunk_size": 64,
    "prefill_mode": "chunked",
    "prefix_cache_max_num_recycling_seqs": 2,
    "sliding_window_size": 32,
    "speculative_mode": "prompt_lookup",
    "split_special_tokens": True,
    "step_token_budget": 64,
    "vision_quantization": "q8_0",
}
# Those that count for encoders, that have one value only, or that need another setting.
_KEPT_BY_ENCODERS: dict[str, Any] = {
    "additional_models": (),
    "allowed_local_media_path": "images",
    "allowed_media_domains": ("example.com",),
    "enable_tracing": True,
    "kv_cache_page_size": 16,
    "kv_state_kind": "kv_cache",
    "max_image_pixels": 4,
    "max_audio_seconds": 5,
    "max_images_per_prompt": 1,
    "max_single_sequence_length": 16,
    "mode": "server",
    "model": "m",
    "model_lib": "lib",
    "num_threads": 1,
    "opt": None,
    "pipeline_parallel_stages": 1,
    "prefix_cache_mode": "disable",
    "quantization": "q0f32",
    "spec_draft_length": 4,
    "spec_tree_width": 1,
    "tensor_parallel_shards": 1,
    "verbose": True,
}


@pytest.mark.parametrize("name", EngineConfig.__dataclass_fields__)
def test_an_encoder_uses_each_setting_or_refuses_it_by_name(name: str) -> None:
    if name in _KEPT_BY_ENCODERS:
        check_encoder(EngineConfig(**{name: _KEPT_BY_ENCODERS[name]}), 16)
        return

    value = _REFUSED_BY_ENCODERS[name]
    message = f"engine_config.{name} = {value!r} is only supported by decoders"
    with pytest.raises(BadRequestError, match=re.escape(message)) as caught:
        check_encoder(EngineConfig(**{name: value}), 16)

    assert caught.value.param == name


def test_an_encoder_has_no_longer_sequences_than_positions() -> None:
    with pytest.raises(BadRequestError, match=r"context length \(16\), got 17") as caught:
        check_encoder(EngineConfig(max_single_sequence_length=17), 16)

    assert caught.value.param == "max_single_sequence_length"


@given(
    mode=st.sampled_from(["local", "interactive", "server"]),
    context_window=st.integers(1, 200_000),
    rows=st.none() | st.integers(1, 300),
    memory=st.integers(400, 2**40),
)
def test_limits_are_consistent(
    mode: Mode, context_window: int, rows: int | None, memory: int
) -> None:
    limits = serving_limits(
        EngineConfig(max_num_sequence=rows),
        mode=mode,
        context_window=context_window,
        kv_bytes_per_token=10,
        memory_bytes=memory,
    )

    assert limits.max_total_tokens % 16 == 0
    assert 0 < limits.context_window <= min(context_window, limits.max_total_tokens)
    assert limits.max_batch_size <= limits.step_token_budget <= limits.prefill_chunk_size
    assert limits.max_total_tokens * 10 <= memory


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("num_thread", "; did you mean num_threads?"),
        ("max_batch_size", "; did you mean max_num_sequence?"),
        ("xyzzy", ""),
    ],
)
def test_an_unknown_field_is_named_with_a_similar_one(name: str, hint: str) -> None:
    values: dict[str, Any] = {name: 2}
    with pytest.raises(TypeError) as caught:
        EngineConfig(**values)

    assert str(caught.value) == f"EngineConfig has no field {name!r}{hint}"


def test_a_configuration_can_be_copied_and_pickled() -> None:
    config = EngineConfig(num_threads=2)

    assert copy.copy(config) == pickle.loads(pickle.dumps(config)) == config
