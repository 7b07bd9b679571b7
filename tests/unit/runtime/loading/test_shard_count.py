"""The number of shards, and the formats that cannot be divided."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.models.parameters.packed_layout import Layout
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.models.parameters.parameter import Split
from aiomlc.runtime.loading.model_directory import ModelDirectory
from aiomlc.runtime.loading.shards import require_divisible_formats, shard_count


def matrix(layout: Layout, columns: int, split: Split) -> PackedParameter:
    rows = sum(count for _, count in layout)
    return PackedParameter("w", "matrix", layout, (rows, columns), ("w",), split=split, shards=2)


def directory(path: Path, config: object) -> ModelDirectory:
    (path / "mlc-chat-config.json").write_text(json.dumps(config))
    return ModelDirectory(path)


@pytest.mark.parametrize(
    ("config", "requested", "count"),
    [
        ({"model_config": {"tensor_parallel_shards": 4}}, None, 4),
        ({"model_config": {"tensor_parallel_shards": 4}}, 1, 1),
        ({"model_config": {}}, None, 1),
        ({"tensor_parallel_shards": 3}, None, 3),
        ({}, 2, 2),
    ],
)
def test_an_mlc_directory_has_the_default(
    tmp_path: Path, config: object, requested: int | None, count: int
) -> None:
    engine_config = EngineConfig(tensor_parallel_shards=requested)

    assert shard_count(directory(tmp_path, config), engine_config) == count


@pytest.mark.parametrize("value", [0, -1, "2", 1.5, True, None])
def test_an_invalid_number_in_a_file_is_an_error(tmp_path: Path, value: object) -> None:
    model = directory(tmp_path, {"model_config": {"tensor_parallel_shards": value}})

    with pytest.raises(ModelLoadError, match="tensor_parallel_shards must be an integer") as caught:
        shard_count(model, EngineConfig())

    assert caught.value.field == "tensor_parallel_shards"


@pytest.mark.parametrize("value", [0, -1, 65, 1.5, "two"])
def test_an_invalid_number_in_the_configuration_is_an_error(value: object) -> None:
    with pytest.raises(BadRequestError) as caught:
        EngineConfig(tensor_parallel_shards=value)  # type: ignore[arg-type]

    assert caught.value.param == "tensor_parallel_shards"


@pytest.mark.parametrize(
    ("layout", "columns", "problem"),
    [
        ((("q4", 16),), 96, "w has 96 columns in groups of 32 .q4., .* a multiple of 64"),
        ((("u4g128f16z8", 16),), 128, "groups of 128 .* a multiple of 256"),
        ((("u4g32k8m", 16),), 256, "groups of 256 .* a multiple of 512"),
        ((("i4progressive", 16),), 192, "groups of 64 .i4progressive., .* a multiple of 128"),
        ((("i8channel", 16),), 65, "groups of 1 .i8channel., .* a multiple of 2"),
    ],
)
def test_columns_are_not_cut_within_a_group(layout: Layout, columns: int, problem: str) -> None:
    with pytest.raises(BadRequestError, match=problem) as caught:
        require_divisible_formats([matrix(layout, columns, Split("columns"))], 2)

    assert caught.value.param == "tensor_parallel_shards"


def test_a_scale_per_row_is_that_of_each_shards_columns() -> None:
    for name, columns in (("i8channel", 66), ("i4progressive", 128)):
        layout = ((name, 16),)
        require_divisible_formats([matrix(layout, columns, Split("columns"))], 2)


def test_a_matrix_with_rows_of_several_formats_is_not_divided_by_rows() -> None:
    mixed = (("q4", 16), ("bf16", 16))
    with pytest.raises(BadRequestError, match=r"w has rows of several formats \(q4, bf16\)"):
        require_divisible_formats([matrix(mixed, 64, Split("rows", (16, 16)))], 2)

    require_divisible_formats([matrix(mixed, 64, Split("columns"))], 2)


def test_a_shard_has_an_equal_part_of_each_segment() -> None:
    whole = matrix((("q4", 96),), 64, Split("rows", (64, 16, 16)))
    second = whole.of_shard(1)

    assert whole.row_runs == ((0, 32), (64, 8), (80, 8))
    assert second.row_runs == ((32, 32), (72, 8), (88, 8))
    assert second.shard_shape == (48, 64)
    assert second.shard_layout == (("q4", 48),)
    assert second.nbytes == matrix((("q4", 48),), 64, Split("columns")).nbytes * 2
    assert PackedParameter.from_json(second.as_json()) == second


def test_a_shard_has_some_columns_or_zeros() -> None:
    columns = matrix((("q4", 16),), 128, Split("columns")).of_shard(1)
    bias = replace(columns, kind="vector", layout=(), shape=(16,), split=Split("first"))

    assert (columns.columns, columns.shard_shape) == ((64, 64), (16, 64))
    assert (bias.is_zero, bias.of_shard(0).is_zero, bias.shard_shape) == (True, False, (16,))
