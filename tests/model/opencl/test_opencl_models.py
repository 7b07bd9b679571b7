"""Logits of tiny models on an OpenCL device equal those of transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aiomlc.cache import list_entries
from aiomlc.errors import ModelLoadError
from aiomlc.runtime.native.model import NativeModel
from aiomlc.runtime.native.opencl import OpenCLDevice
from aiomlc.runtime.native.self_test import require_equal_rows
from tests.model.device_logits import (
    PARITY_CASES,
    check_batch,
    check_forks,
    check_logits,
    check_storage,
)
from tests.model.engine_answers import check_bundled_model

OpenTiny = Callable[..., NativeModel]

DEVICE = "opencl"
TOLERANCE = 1e-3

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("opencl")]


@pytest.mark.parametrize(("architecture", "quantization"), PARITY_CASES)
def test_logits_equal_transformers(
    open_tiny: OpenTiny, architecture: str, quantization: str
) -> None:
    model = open_tiny(architecture, quantization, "float32", DEVICE)

    check_logits(model, architecture, quantization, TOLERANCE)


@pytest.mark.parametrize(
    ("architecture", "kv_cache_dtype", "tolerance"),
    [("llama", "int8", 1e-3), ("gemma3_text", "int8", 1e-3), ("llama", "bfloat16", 1e-2)],
)
def test_stored_keys_and_values_have_the_rounding_of_the_cpu(
    open_tiny: OpenTiny, architecture: str, kv_cache_dtype: str, tolerance: float
) -> None:
    check_storage(open_tiny, architecture, kv_cache_dtype, DEVICE, tolerance)


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text", "qwen3_5_text"])
def test_sequences_of_a_batch_do_not_affect_each_other(
    open_tiny: OpenTiny, architecture: str
) -> None:
    check_batch(open_tiny(architecture, "q0f32", "auto", DEVICE), TOLERANCE)


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text"])
def test_a_fork_at_any_position_continues_the_prefix(
    open_tiny: OpenTiny, architecture: str
) -> None:
    check_forks(open_tiny(architecture, "q0f32", "auto", DEVICE), TOLERANCE)


@pytest.mark.usefixtures("model_cache")
def test_the_bundled_model_has_the_answers_of_the_cpu() -> None:
    check_bundled_model(DEVICE)


def test_machine_code_is_cached_for_the_device_and_its_driver(
    open_tiny: OpenTiny, opencl: OpenCLDevice
) -> None:
    open_tiny("llama", "q0f32", "auto", DEVICE)

    assert f"kernels on {opencl.name}" in [entry.info["model"] for entry in list_entries()]


def test_a_driver_that_computes_wrong_rows_is_refused_by_name(
    open_tiny: OpenTiny, opencl: OpenCLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_tiny("llama", "q0f32", "auto", DEVICE)
    forward = NativeModel.forward

    def wrong(self: NativeModel, rows: Sequence[tuple[int, Sequence[int]]]) -> Any:  # noqa: ANN401
        logits = forward(self, rows)
        if len(rows[0][1]) > 32:  # As PoCL 3.1: the second tile of a prompt is wrong.
            logits[0] = logits[0][::-1]
        return logits

    require_equal_rows(model, opencl)
    monkeypatch.setattr(NativeModel, "forward", wrong)
    with pytest.raises(ModelLoadError, match="computes wrong attention") as caught:
        require_equal_rows(model, opencl)

    assert opencl.name in str(caught.value)
    assert opencl.driver_version in str(caught.value)
