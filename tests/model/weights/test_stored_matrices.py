"""Matrices of quantized checkpoints are converted to exactly the numbers that they mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc import ModelLoadError
from tests.model.quantized_files import (
    QUANTIZERS,
    Quantized,
    awq,
    compressed,
    fp8,
    gptq,
    mlc_groups,
)
from tests.model.quantized_models import write_tensors
from tests.model.weight_files import Array, mlc_record, write_mlc
from tests.model.weights.params import map_all, prepare

pytestmark = pytest.mark.anyio

# 40 rows are not whole tiles; the outputs are in tensors of 24 and 16 rows.
PARTS = ("q_proj", "k_proj")
PART_ROWS = (24, 16)
COLUMNS = 384


def random_matrix(rows: int, columns: int, seed: int) -> NDArray[np.float32]:
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    values[:, :32] = np.abs(values[:, :32])  # Groups with a zero point at the end of the range.
    return values


def quantized_parts(quantizer: str) -> list[Quantized]:
    apply = QUANTIZERS[quantizer].apply
    return [
        apply(random_matrix(rows, COLUMNS, rows), np.random.default_rng(rows)) for rows in PART_ROWS
    ]


def write_parts(model: Path, parts: list[Quantized], config: Mapping[str, Any]) -> None:
    tensors = {
        f"{name}.{suffix}": array
        for name, part in zip(PARTS, parts, strict=True)
        for suffix, array in part.tensors.items()
    }
    write_tensors(model / "model.safetensors", tensors)
    (model / "config.json").write_text(json.dumps({"quantization_config": config}))


def unpack_f32(packed: Array, rows: int, columns: int) -> NDArray[np.float32]:
    tiles = packed.view(np.float32).reshape(-1, columns, 16)
    return tiles.transpose(0, 2, 1).reshape(-1, columns)[:rows]


def qkv_record(layout: list[list[object]]) -> dict[str, Any]:
    return {
        "name": "qkv",
        "kind": "matrix",
        "layout": layout,
        "shape": [sum(PART_ROWS), COLUMNS],
        "sources": [f"{part}.weight" for part in PARTS],
    }


@pytest.mark.parametrize("quantizer", QUANTIZERS)
async def test_weights_are_what_the_definition_says(model: Path, quantizer: str) -> None:
    parts = quantized_parts(quantizer)
    write_parts(model, parts, QUANTIZERS[quantizer].config)

    (array,) = map_all(await prepare(model, [qkv_record([["f32", sum(PART_ROWS)]])]))

    expected = np.concatenate([part.weights for part in parts])
    if quantizer == "gptq_ordered":
        expected = expected[:, np.argsort(parts[0].tensors["g_idx"], kind="stable")]
    np.testing.assert_array_equal(unpack_f32(array, sum(PART_ROWS), COLUMNS), expected)


async def test_an_error_of_a_product_names_both_factors(model: Path) -> None:
    parts = quantized_parts("fp8_block")
    parts[1].tensors["weight_scale_inv"][0, 0] = 2e38
    write_parts(model, parts, QUANTIZERS["fp8_block"].config)

    problem = "a value is not finite, scaled by k_proj.weight_scale_inv$"
    with pytest.raises(ModelLoadError, match=problem) as caught:
        await prepare(model, [qkv_record([["f32", sum(PART_ROWS)]])])

    assert caught.value.tensor == "k_proj.weight"


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
async def test_zero_points_of_0_are_stored_modulo_the_number_of_codes(
    model: Path, version: str, bits: int
) -> None:
    """Zero points are stored minus 1 modulo the number of codes, except in `gptq_v2`."""
    quantize = partial(gptq, bits=bits, group=64, offset=1 if version == "gptq" else 0)
    parts = [
        quantize(np.abs(random_matrix(rows, COLUMNS, rows)), np.random.default_rng(rows))
        for rows in PART_ROWS
    ]
    expected_word = 0xFFFFFFFF if version == "gptq" else 0
    assert parts[0].tensors["qzeros"].view(np.uint32).flat[0] == expected_word
    config = {"quant_method": "gptq", "bits": bits, "group_size": 64, "checkpoint_format": version}
    write_parts(model, parts, config)

    (array,) = map_all(await prepare(model, [qkv_record([["f32", sum(PART_ROWS)]])]))

    expected = np.concatenate([part.weights for part in parts])
    np.testing.assert_array_equal(unpack_f32(array, sum(PART_ROWS), COLUMNS), expected)


async def test_zero_points_of_packed_values_may_be_bytes(model: Path) -> None:
    """Versions of compressed-tensors differ."""
    quantize = partial(compressed, bits=4, group=32, symmetric=False, packed_zeros=False)
    parts = [
        quantize(random_matrix(rows, COLUMNS, rows), np.random.default_rng(rows))
        for rows in PART_ROWS
    ]
    assert parts[0].tensors["weight_zero_point"].min() == -8
    config = QUANTIZERS["w4a16_asymmetric"].config
    write_parts(model, parts, config)

    (array,) = map_all(await prepare(model, [qkv_record([["f32", sum(PART_ROWS)]])]))

    expected = np.concatenate([part.weights for part in parts])
    np.testing.assert_array_equal(unpack_f32(array, sum(PART_ROWS), COLUMNS), expected)

    parts[1].tensors["weight_zero_point"][3, 5] = 8
    write_parts(model, parts, config)
    with pytest.raises(ModelLoadError, match="a zero point is not an integer of 4 bits") as caught:
        await prepare(model, [qkv_record([["f32", sum(PART_ROWS)]])])

    assert caught.value.tensor == "k_proj.weight_zero_point"


MLC = {
    "q4f16_1": partial(mlc_groups, bits=4, scale_dtype="f16"),
    "q4f16_0": partial(mlc_groups, bits=4, scale_dtype="f16", transposed=True),
    "q4bf16_1": partial(mlc_groups, bits=4, scale_dtype="bf16"),
    "q4bf16_0": partial(mlc_groups, bits=4, scale_dtype="bf16", transposed=True),
    "q4f32_1": partial(mlc_groups, bits=4, scale_dtype="f32"),
    "q3f16_1": partial(mlc_groups, bits=3, scale_dtype="f16"),
    "q3f16_0": partial(mlc_groups, bits=3, scale_dtype="f16", transposed=True),
    "q4f16_autoawq": partial(awq, group=128),
    "e4m3_e4m3_f16": partial(fp8, scale_name="q_scale"),
    "fp8_e4m3fn_bf16_block_scale": partial(fp8, block=(32, 64), scale_name="weight_scale_inv"),
}


@pytest.mark.parametrize("quantization", MLC)
async def test_mlc_weights_are_what_the_definition_says(model: Path, quantization: str) -> None:
    columns = 80 if quantization == "q3f16_1" else COLUMNS  # Whole groups, and a partial one.
    quantized = MLC[quantization](random_matrix(40, columns, 1), np.random.default_rng(1))
    names = {"weight": "q_weight"} if quantization.startswith("e4m3") else {}
    records = [
        (mlc_record(f"layer.{names.get(suffix, suffix)}", array), array)
        for suffix, array in quantized.tensors.items()
    ]
    for record, array in records:
        if array.dtype == np.int32:  # MLC LLM has words as uint32.
            record["dtype"] = "uint32"
    write_mlc(model, records)
    (model / "mlc-chat-config.json").write_text(
        json.dumps({"quantization": quantization, "model_config": {"weight_block_size": [32, 64]}})
    )
    record = {"name": "layer", "kind": "matrix", "layout": [["f32", 40]], "shape": [40, columns]}

    (array,) = map_all(await prepare(model, [record | {"sources": []}]))

    np.testing.assert_array_equal(unpack_f32(array, 40, columns), quantized.weights)


async def test_an_embedding_is_stored_by_rows_in_every_mlc_directory(model: Path) -> None:
    """Of a quantization whose other matrices are transposed."""
    quantized = MLC["q4f16_1"](random_matrix(40, COLUMNS, 1), np.random.default_rng(1))
    write_mlc(
        model,
        [(mlc_record(f"e.{name}", array), array) for name, array in quantized.tensors.items()],
    )
    (model / "mlc-chat-config.json").write_text(json.dumps({"quantization": "q4f16_0"}))
    record = {"name": "e", "kind": "matrix", "layout": [["f32", 40]], "shape": [40, COLUMNS]}

    (array,) = map_all(await prepare(model, [record | {"sources": []}]))

    np.testing.assert_array_equal(unpack_f32(array, 40, COLUMNS), quantized.weights)


@pytest.mark.parametrize(
    "apply",
    [
        partial(gptq, bits=4, group=32, by_activation=True),
        partial(compressed, bits=4, group=32, by_activation=True),
    ],
)
async def test_inputs_are_sorted_by_group(model: Path, apply: Any) -> None:  # noqa: ANN401
    random = np.random.default_rng(1)
    parts = [apply(random_matrix(rows, COLUMNS, rows), random) for rows in PART_ROWS]
    config = (
        {**QUANTIZERS["gptq_2_g32"].config, "bits": 4, "desc_act": True}
        if "qweight" in parts[0].tensors
        else _with_order(QUANTIZERS["w4a16_group"].config)
    )
    write_parts(model, parts, config)
    sources = [f"{part}.weight" for part in PARTS]
    order = {"name": "o", "kind": "order", "layout": [], "shape": [COLUMNS], "sources": sources}

    array, order_array = map_all(await prepare(model, [qkv_record([["f32", 40]]), order]))

    groups = next(
        parts[0].tensors[name] for name in ("g_idx", "weight_g_idx") if name in parts[0].tensors
    )
    assert order_array.tolist() == np.argsort(groups, kind="stable").tolist()
    assert order_array.dtype == np.int32
    expected = np.concatenate([part.weights for part in parts])[:, order_array]
    np.testing.assert_array_equal(unpack_f32(array, 40, COLUMNS), expected)


def _with_order(config: Mapping[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(config))
    changed["config_groups"]["group_0"]["weights"]["actorder"] = "group"
    return changed


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # It takes a second.
@pytest.mark.parametrize(("name", "rows"), [("awq_g128", 1048), ("gptq_3_g128", 1408)])
async def test_large_matrices_are_read_in_several_strips(model: Path, name: str, rows: int) -> None:
    quantizer = QUANTIZERS[name]
    quantized = quantizer.apply(random_matrix(rows, 8192, 5), np.random.default_rng(5))
    write_tensors(
        model / "model.safetensors", {f"w.{key}": value for key, value in quantized.tensors.items()}
    )
    (model / "config.json").write_text(json.dumps({"quantization_config": quantizer.config}))
    layout = [["f32", rows]]
    record = {"name": "w", "kind": "matrix", "layout": layout, "shape": [rows, 8192]}

    (array,) = map_all(await prepare(model, [record | {"sources": ["w.weight"]}]))

    np.testing.assert_array_equal(unpack_f32(array, rows, 8192), quantized.weights)
