"""Conversion of a model directory gives exactly the packed bytes of a NumPy reference."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import CancelScope, fail_after

from aiomlc.errors import ModelLoadError
from aiomlc.weights import Progress, map_weights
from tests.model.weight_files import (
    MLC_NAMES,
    Array,
    from_bf16,
    load,
    mlc_record,
    mlc_words,
    pack,
    pack_q4,
    quantize,
    store,
    to_bf16,
    write_mlc,
    write_safetensors,
    write_shards,
)
from tests.model.weights.params import (
    HIDDEN,
    ROWS,
    Params,
    entries,
    expected,
    make_params,
    make_weights,
    map_all,
    merge_qkv,
    prepare,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("weight_format", ["q4", "bf16", "f16", "f32"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
async def test_packed_parameters_equal_the_reference(
    model: Path, dtype: str, weight_format: str
) -> None:
    tensors = make_weights(dtype)
    write_safetensors(model / "model.safetensors", tensors)

    arrays = map_all(await prepare(model, make_params(weight_format)))

    assert [array.tobytes() for array in arrays] == expected(tensors, weight_format)
    assert [array.dtype.name for array in arrays] == ["uint8", "uint8", "float32", "float32"]
    assert [array.shape for array in arrays[2:]] == [(ROWS,), (HIDDEN,)]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("is_mlc", [False, True])
async def test_the_weight_offset_is_added_except_for_mlc_directories(
    model: Path, dtype: str, is_mlc: bool
) -> None:
    stored = store(np.random.default_rng(3).normal(0, 0.1, 70_000), dtype)
    if is_mlc:
        write_mlc(model, [(mlc_record("norm.weight", stored, dtype=MLC_NAMES[dtype]), stored)])
    else:
        write_safetensors(model / "model.safetensors", {"norm.weight": (dtype, stored)})
    params = [{"name": "norm.weight", "kind": "vector", "layout": [], "shape": [stored.size],
               "sources": ["norm.weight"], "weight_offset": 1.0}]  # fmt: skip

    (array,) = map_all(await prepare(model, params))

    offset = np.float32(0 if is_mlc else 1)
    np.testing.assert_array_equal(array, load(stored) + offset)


async def test_every_float16_value_is_converted_exactly(model: Path) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    halves = halves[(halves & 0x7C00) != 0x7C00].view(np.float16)
    write_safetensors(model / "model.safetensors", {"all": ("f16", halves)})
    params = [{"name": "all", "kind": "vector", "layout": [], "shape": [halves.size],
               "sources": ["all"]}]  # fmt: skip

    (converted,) = map_all(await prepare(model, params))

    assert converted.tobytes() == halves.astype(np.float32).tobytes()


async def test_the_packed_bytes_do_not_depend_on_the_number_of_threads(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several blocks per matrix, the last one partial.
    weight = np.random.default_rng(1).normal(0, 1, (2051, 544)).astype(np.float32)
    write_safetensors(model / "model.safetensors", {"w": ("f32", weight)})
    params = [{"name": "w", "kind": "matrix", "layout": [["q4", 2051]], "shape": [2051, 544],
               "sources": ["w"]}]  # fmt: skip

    for num_threads in (1, 3):
        monkeypatch.setenv("AIOMLC_HOME", str(model.parent / f"home{num_threads}"))
        weights = await prepare(model, params, num_threads=num_threads)

        assert map_all(weights)[0].tobytes() == pack(weight, "q4")


async def test_shards_give_the_same_bytes_as_one_file(model: Path) -> None:
    tensors = make_weights("bf16")
    items = list(tensors.items())
    write_shards(model, [dict(items[:3]), dict(items[3:5]), dict(items[5:])])

    arrays = map_all(await prepare(model, make_params("q4")))

    assert [array.tobytes() for array in arrays] == expected(tensors, "q4")


@pytest.mark.parametrize("index_name", ["tensor-cache.json", "ndarray-cache.json"])
async def test_a_quantized_mlc_directory_gives_the_same_bytes(model: Path, index_name: str) -> None:
    tensors = make_weights("f16")
    mlc: list[tuple[dict[str, Any], Array]] = []
    matrices = (
        ("embed", load(tensors["embed.weight"][1])),
        ("layer.qkv_proj", merge_qkv(tensors, "weight")),
    )
    for name, weight in matrices:
        values, scales = quantize(weight)
        words = mlc_words(values)
        mlc += [(mlc_record(f"{name}.q_weight", words), words)]
        mlc += [(mlc_record(f"{name}.q_scale", scales), scales)]

    bias = merge_qkv(tensors, "bias").astype(np.float16)
    mlc += [(mlc_record("layer.qkv_proj.bias", bias), bias)]
    norm = tensors["norm.weight"][1]
    mlc += [(mlc_record("norm.weight", norm), norm)]
    write_mlc(model, mlc, index_name=index_name)

    arrays = map_all(await prepare(model, make_params("q4")))

    assert [array.tobytes() for array in arrays] == expected(tensors, "q4")


async def test_a_quantized_mlc_value_of_15_is_kept(model: Path) -> None:
    values = np.full((16, 32), 15, np.uint8)
    scales = np.full((16, 1), 0.5, np.float16)
    words = mlc_words(values)
    write_mlc(
        model, [(mlc_record("w.q_weight", words), words), (mlc_record("w.q_scale", scales), scales)]
    )
    params = [{"name": "w", "kind": "matrix", "layout": [["q4", 16]], "shape": [16, 32],
               "sources": ["w.weight"]}]  # fmt: skip

    (packed,) = map_all(await prepare(model, params))

    assert packed.tobytes() == pack_q4(values, scales)


async def test_an_unquantized_mlc_directory_may_store_float32_as_bfloat16(model: Path) -> None:
    weight = np.random.default_rng(2).normal(0, 1, (ROWS, HIDDEN)).astype(np.float32)
    norm = np.random.default_rng(3).normal(0, 1, HIDDEN).astype(np.float32)
    halves, norm_halves = to_bf16(weight), to_bf16(norm)
    changed = {"dtype": "float32", "format": "f32-to-bf16"}
    write_mlc(
        model,
        [
            (mlc_record("w.weight", halves, **changed), halves),
            (mlc_record("norm.weight", norm_halves, dtype="bfloat16"), norm_halves),
        ],
    )
    params = [
        {"name": "w", "kind": "matrix", "layout": [["f32", ROWS]], "shape": [ROWS, HIDDEN],
         "sources": []},
        {"name": "norm.weight", "kind": "vector", "layout": [], "shape": [HIDDEN],
         "sources": []},
    ]  # fmt: skip

    arrays = map_all(await prepare(model, params))

    assert arrays[0].tobytes() == pack(from_bf16(halves), "f32")
    assert arrays[1].tobytes() == from_bf16(norm_halves).tobytes()


async def test_mapped_parameters_are_aligned_and_outlive_the_file(model: Path) -> None:
    tensors = make_weights("bf16")
    write_safetensors(model / "model.safetensors", tensors)
    weights = await prepare(model, make_params("q4"))

    mapped: Sequence[Any] | None = map_weights(weights.path, weights.nbytes, weights.params)
    assert mapped is not None
    last = np.from_dlpack(mapped[-1])
    addresses = [np.from_dlpack(tensor).ctypes.data for tensor in mapped]
    weights.path.unlink()
    mapped = None
    gc.collect()

    assert [address % 64 for address in addresses] == [0] * len(addresses)
    assert last.tobytes() == expected(tensors, "q4")[-1]


async def test_progress_ends_at_the_total_size_of_the_sources(model: Path) -> None:
    tensors = make_weights("bf16")
    write_safetensors(model / "model.safetensors", tensors)
    reports: list[Progress] = []

    await prepare(model, make_params("q4"), on_progress=reports.append)

    total = sum(stored.nbytes for _, stored in tensors.values())
    assert reports[-1] == Progress(total, total)
    assert [step.done_bytes for step in reports] == sorted(step.done_bytes for step in reports)


@pytest.fixture
def slow_model(model: Path) -> tuple[Path, Params]:
    """Write a sparse file of 4 GB of zeros, whose conversion takes much longer than a test may."""
    rows, cols = 1 << 19, 4096
    header = {"w": {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [0, rows * cols * 2]}}
    encoded = json.dumps(header).encode()
    path = model / "model.safetensors"
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded)
    os.truncate(path, 8 + len(encoded) + rows * cols * 2)
    return model, [{"name": "w", "kind": "matrix", "layout": [["q4", rows]], "shape": [rows, cols],
                    "sources": ["w"]}]  # fmt: skip


@pytest.mark.sampled(1)
async def test_a_cancelled_conversion_stops_early_and_leaves_nothing(
    slow_model: tuple[Path, Params],
) -> None:
    model, params = slow_model
    reports: list[Progress] = []

    with CancelScope() as scope:

        def cancel_when_started(progress: Progress) -> None:
            reports.append(progress)
            if progress.done_bytes > 0:
                scope.cancel()

        await prepare(model, params, on_progress=cancel_when_started)

    assert scope.cancelled_caught
    assert 0 < reports[-1].done_bytes < reports[-1].total_bytes
    assert entries(model) == []


@pytest.mark.thorough
async def test_an_exception_in_on_progress_stops_the_conversion_and_is_raised(
    slow_model: tuple[Path, Params],
) -> None:
    model, params = slow_model

    def fail(progress: Progress) -> None:
        raise LookupError(progress.total_bytes)

    with fail_after(30), pytest.raises(LookupError):
        await prepare(model, params, on_progress=fail)

    assert entries(model) == []


async def test_a_missing_tensor_is_reported(model: Path) -> None:
    tensors = make_weights("bf16")
    del tensors["layer.k_proj.weight"]
    write_safetensors(model / "model.safetensors", tensors)

    with pytest.raises(ModelLoadError, match=r"layer\.k_proj\.weight: tensor is missing") as caught:
        await prepare(model, make_params("q4"))

    assert caught.value.tensor == "layer.k_proj.weight"
    assert caught.value.path == model / "model.safetensors"
    assert entries(model) == []


async def test_unused_tensors_are_ignored(model: Path) -> None:
    tensors = make_weights("bf16")
    extra = np.zeros(3, np.float32)
    write_safetensors(
        model / "model.safetensors", {"rotary_emb.inv_freq": ("f32", extra), **tensors}
    )

    arrays = map_all(await prepare(model, make_params("f32")))

    assert [array.tobytes() for array in arrays] == expected(tensors, "f32")


async def test_an_error_of_a_fused_matrix_names_the_tensor_of_the_file(model: Path) -> None:
    tensors = make_weights("f32")
    dtype, values = tensors["layer.v_proj.weight"]
    values = values.copy()
    values[-1, -1] = np.nan
    path = model / "model.safetensors"
    write_safetensors(path, {**tensors, "layer.v_proj.weight": (dtype, values)})

    with pytest.raises(ModelLoadError, match="a value is not finite") as caught:
        await prepare(model, make_params("q4"))

    assert (caught.value.path, caught.value.tensor) == (path, "layer.v_proj.weight")


async def test_a_truncated_packed_file_is_not_mapped(model: Path) -> None:
    write_safetensors(model / "model.safetensors", make_weights("bf16"))
    weights = await prepare(model, make_params("q4"))
    os.truncate(weights.path, 100)

    with pytest.raises(ModelLoadError, match="file has 100 bytes, expected"):
        map_weights(weights.path, weights.nbytes, weights.params)
