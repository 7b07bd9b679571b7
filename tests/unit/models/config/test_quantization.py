"""The quantization of a checkpoint is read from its config, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models.config.quantization import (
    MLC_QUANTIZATIONS,
    QUANTIZATION_METHODS,
    StoredQuantization,
    read_quantization,
)

AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128}
GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 64}


def compressed(
    weights: dict[str, Any], *, input_activations: dict[str, Any] | None = None, **options: object
) -> dict[str, Any]:
    settings = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, **weights}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": settings,
                "input_activations": input_activations,
            }
        },
        **options,
    }


FP8_WEIGHTS: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "block"}


def read(directory: Path, config: dict[str, Any]) -> StoredQuantization | None:
    (directory / "config.json").write_text(json.dumps({"quantization_config": config}))
    return read_quantization(ConfigFiles(directory))


def read_mlc(directory: Path, **config: object) -> StoredQuantization | None:
    (directory / "mlc-chat-config.json").write_text(json.dumps(config))
    return read_quantization(ConfigFiles(directory))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (AWQ, StoredQuantization("awq", "awq", 4, 128)),
        (AWQ | {"version": "GEMM", "group_size": -1}, StoredQuantization("awq", "awq", 4, -1)),
        (GPTQ, StoredQuantization("gptq", "gptq", 4, 64, zero_point_offset=1)),
        (
            GPTQ | {"checkpoint_format": "gptq_v2", "desc_act": True, "bits": 3},
            StoredQuantization("gptq", "gptq", 3, 64, has_input_order=True),
        ),
        (
            GPTQ | {"dynamic": {"-:.*lm_head": {}}, "desc_act": False},
            StoredQuantization("gptq", "gptq", 4, 64, zero_point_offset=1),
        ),
        (compressed({}), StoredQuantization("compressed-tensors", "compressed-tensors")),
        (
            compressed({"actorder": "group"}),
            StoredQuantization("compressed-tensors", "compressed-tensors", has_input_order=True),
        ),
        (
            compressed({}, input_activations={"num_bits": 8, "type": "int", "strategy": "token"}),
            StoredQuantization(
                "compressed-tensors", "compressed-tensors", has_int8_activations=True
            ),
        ),
        (
            compressed({}, input_activations={"num_bits": 8, "type": "float"}),
            StoredQuantization("compressed-tensors", "compressed-tensors"),
        ),
        (
            compressed(FP8_WEIGHTS | {"block_structure": [128, 64]}, format="float-quantized"),
            StoredQuantization("compressed-tensors", "compressed-tensors", block=(128, 64)),
        ),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            StoredQuantization("fp8", "fp8", block=(128, 128)),
        ),
        ({"quant_method": "fbgemm_fp8"}, StoredQuantization("fp8", "fp8")),
        (
            {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
            StoredQuantization("mxfp4", "mxfp4"),
        ),
    ],
)
def test_supported_quantizations_are_read(
    tmp_path: Path, config: dict[str, Any], expected: StoredQuantization
) -> None:
    assert read(tmp_path, config) == expected


@pytest.mark.parametrize(
    ("config", "field", "problem"),
    [
        ({"bits": 4}, "quant_method", 'must be one of "awq", "gptq", .*, got ""'),
        ({"quant_method": "bitsandbytes"}, "quant_method", r"model\.dequantize\(\)"),
        ({"quant_method": "hqq"}, "quant_method", 'got "hqq": its weights cannot be read'),
        (AWQ | {"version": "gemv"}, "version", 'must be one of "gemm", "GEMM", got "gemv"'),
        (AWQ | {"zero_point": False}, "zero_point", "must be true, got false"),
        (AWQ | {"bits": 3}, "bits", "must be 4, got 3"),
        (AWQ | {"group_size": 48}, "group_size", "must be one of -1, 32, 64, 128, 256, got 48"),
        (GPTQ | {"bits": 5}, "bits", "must be one of 2, 3, 4, 8, got 5"),
        (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format", '"gptq", "gptq_v2", got'),
        (GPTQ | {"is_marlin_format": True}, "is_marlin_format", "must be false"),
        (GPTQ | {"dynamic": {"+:down": {"bits": 8}}}, "dynamic", "must only exclude modules"),
        (compressed({}, format="marlin-24"), "format", 'got "marlin-24"'),
        (compressed({}, format="nvfp4-pack-quantized"), "format", '"nvfp4-pack-quantized"'),
        (compressed({}, quantization_status="frozen"), "quantization_status", "frozen"),
        (
            compressed({}, sparsity_config={"format": "sparse-24-bitmask"}),
            "sparsity_config.format",
            'must be "dense"',
        ),
        (compressed({}, transform_config={"a": 1}), "transform_config", "must be absent"),
        (compressed({}, config_groups={}), "config_groups", "must have at least one group"),
        (compressed({"num_bits": 3}), "config_groups.group_0.weights.num_bits", "4, 8, got 3"),
        (
            compressed({"strategy": "block"}),
            "config_groups.group_0.weights.strategy",
            '"tensor", "channel", "group", got "block"',
        ),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "fmt", 'got "e5m2"'),
        (
            {"quant_method": "fp8", "weight_block_size": [128]},
            "weight_block_size",
            "must be two positive integers",
        ),
    ],
)
def test_other_quantizations_are_refused_by_name(
    tmp_path: Path, config: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        read(tmp_path, config)

    assert caught.value.field == f"quantization_config.{field}"
    assert caught.value.path == tmp_path / "config.json"


@pytest.mark.parametrize("name", MLC_QUANTIZATIONS)
def test_quantizations_of_mlc_are_read(tmp_path: Path, name: str) -> None:
    quantization = read_mlc(tmp_path, quantization=name)

    assert quantization is not None
    assert quantization.name == name
    assert quantization.is_transposed == name.endswith("_0")
    assert quantization.method == ("awq" if "awq" in name else "mlc")


@pytest.mark.parametrize(
    ("name", "problem"), [("q4f16_ft", "one generation of GPUs"), ("q5f16_1", 'got "q5f16_1"')]
)
def test_other_quantizations_of_mlc_are_refused_with_the_supported_ones(
    tmp_path: Path, name: str, problem: str
) -> None:
    with pytest.raises(ModelLoadError, match=problem) as caught:
        read_mlc(tmp_path, quantization=name)

    assert caught.value.field == "quantization"
    assert "q4f16_1" in str(caught.value)


def test_the_block_of_scales_is_read_from_the_config_of_mlc(tmp_path: Path) -> None:
    quantization = read_mlc(
        tmp_path,
        quantization="fp8_e4m3fn_bf16_block_scale",
        model_config={"weight_block_size": [128, 128]},
    )

    assert quantization is not None
    assert quantization.block == (128, 128)


def test_a_directory_of_floats_has_no_quantization(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")

    assert read_quantization(ConfigFiles(tmp_path)) is None
    assert read_quantization(ConfigFiles(tmp_path / "missing")) is None


def test_the_list_of_methods_is_complete() -> None:
    methods = ("awq", "gptq", "compressed-tensors", "fp8", "fbgemm_fp8", "mxfp4")
    assert methods == QUANTIZATION_METHODS
