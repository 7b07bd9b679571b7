"""Invalid or incomplete weight files are rejected with the names of the file and the tensor."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.weights.formats.directory import read_source
from aiomlc.weights.formats.mlc import read_mlc
from aiomlc.weights.formats.safetensors import read_safetensors, read_safetensors_file
from tests.model.weight_files import (
    mlc_record,
    write_mlc,
    write_raw_safetensors,
    write_safetensors,
    write_shards,
)

ONES = np.ones((2, 3), np.float32)
WORDS = np.ones((2, 4), np.uint32)


def entry(**changes: object) -> dict[str, object]:
    return {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **changes}


def write_index(directory: Path, weight_map: object) -> None:
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def edit_mlc_index(directory: Path, **changes: object) -> None:
    """Change fields of the first tensor record of an index."""
    path = directory / "tensor-cache.json"
    index = json.loads(path.read_text())
    index["records"][0]["records"][0] |= changes
    path.write_text(json.dumps(index))


def write_small_mlc(directory: Path) -> Path:
    write_mlc(directory, [(mlc_record("a", ONES), ONES), (mlc_record("b", WORDS), WORDS)])
    return directory


def test_tensors_of_a_file_are_found_at_their_offsets(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"a": ("f32", ONES), "b": ("f16", ONES.astype(np.float16))})

    tensors = read_safetensors(tmp_path).tensors

    data = path.read_bytes()
    for name, dtype in (("a", np.float32), ("b", np.float16)):
        tensor = tensors[name]
        assert tensor.shape == (2, 3)
        assert (np.frombuffer(data, dtype, 6, tensor.offset) == 1).all()


def test_unsupported_dtypes_keep_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_raw_safetensors(
        path, {"ids": entry(dtype="I64", shape=[3]), "a": entry(data_offsets=[24, 48])}, bytes(48)
    )

    tensors = read_safetensors_file(path)

    assert {name: tensor.dtype for name, tensor in tensors.items()} == {"ids": "I64", "a": "f32"}


@pytest.mark.parametrize(
    ("header", "tensor", "message"),
    [
        ({"a": entry(data_offsets=[0, 20])}, "a", r"expected 24 bytes for F32 \[2, 3\], got 20"),
        (
            {"a": entry(), "ids": entry(dtype="I64", shape=[3], data_offsets=[24, 40])},
            "ids",
            r"expected 24 bytes for I64 \[3\], got 16",
        ),
        ({"a": entry(data_offsets=[24, 0])}, "a", r"\[begin, end\], got \[24, 0\]"),
        ({"a": entry(data_offsets=[0, 24, 48])}, "a", r"data_offsets must be \[begin, end\]"),
        ({"a": entry(data_offsets=[-24, 0])}, "a", "malformed"),
        ({"a": entry(shape=[2, True])}, "a", "malformed"),
        ({"a": entry(dtype=5)}, "a", "malformed"),
        ({"a": 5}, "a", "malformed"),
        (
            {"a": entry(), "b": entry(data_offsets=[100, 124])},
            "b",
            "truncated: .* byte 124, file has 48",
        ),
        ({"a": entry(), "b": entry(data_offsets=[8, 32])}, "b", "overlaps a"),
    ],
)
def test_an_invalid_header_entry_is_rejected(
    tmp_path: Path, header: Mapping[str, Any], tensor: str, message: str
) -> None:
    path = tmp_path / "model.safetensors"
    write_raw_safetensors(path, header, bytes(48))

    with pytest.raises(ModelLoadError, match=message) as caught:
        read_safetensors(tmp_path)

    assert caught.value.path == path
    assert caught.value.tensor == tensor
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ('{"a": ENTRY, "b": ENTRY, "a": ENTRY}', "a: the tensor is there twice"),
        ('{"a": {"shape": [2, 3], "shape": [6]}}', "a: a field of it is there twice"),
    ],
)
def test_names_that_are_there_twice_are_rejected(tmp_path: Path, header: str, message: str) -> None:
    data = header.replace("ENTRY", json.dumps(entry())).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(data).to_bytes(8, "little") + data + bytes(24))

    with pytest.raises(ModelLoadError, match=message) as caught:
        read_safetensors_file(path)

    assert (caught.value.path, caught.value.tensor) == (path, "a")


def test_an_empty_name_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_raw_safetensors(path, {"a": entry(), "": entry(data_offsets=[24, 48])}, bytes(48))

    with pytest.raises(ModelLoadError, match="the name of a tensor is empty") as caught:
        read_safetensors_file(path)

    assert (caught.value.path, caught.value.tensor) == (path, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"\x10", "truncated"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "truncated"),
        ((2).to_bytes(8, "little") + b"{", "truncated"),
        ((2).to_bytes(8, "little") + b"}{", "header is invalid JSON"),
        ((2).to_bytes(8, "little") + b"[]", "header must be a JSON object"),
    ],
)
def test_a_file_without_a_header_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)

    with pytest.raises(ModelLoadError, match=message) as caught:
        read_safetensors(tmp_path)

    assert caught.value.path == path


@given(length=st.integers(min_value=0))
def test_a_truncated_file_is_rejected(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "model.safetensors"
    write_safetensors(path, {"a": ("f32", ONES)})
    content = path.read_bytes()
    path.write_bytes(content[: length % len(content)])

    with pytest.raises(ModelLoadError, match="truncated"):
        read_safetensors_file(path)


def test_a_directory_without_weights_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"neither model\.safetensors nor") as caught:
        read_safetensors(tmp_path)

    assert caught.value.path == tmp_path


@pytest.mark.parametrize(
    ("names", "missing", "hint"),
    [
        (["pytorch_model.bin"], "model.safetensors", "contains pytorch_model.bin, and PyTorch's"),
        (["model.bin"], "model.safetensors", "contains model.bin, and PyTorch's pickled weights"),
        (["weights.pkl"], "model.safetensors", "contains weights.pkl, and PyTorch's pickled"),
        (["mlc-chat-config.json", "params_shard_0.bin"], "tensor-cache.json", "need their index"),
        (["mlc-chat-config.json"], "tensor-cache.json", "ndarray-cache.json exists"),
    ],
)
def test_what_is_there_in_place_of_weights_is_explained(
    tmp_path: Path, names: list[str], missing: str, hint: str
) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")

    with pytest.raises(ModelNotFoundError, match=f"neither {missing} nor .*{hint}"):
        read_source(ConfigFiles(tmp_path))


def test_a_missing_shard_is_reported(tmp_path: Path) -> None:
    write_shards(tmp_path, [{"a": ("f32", ONES)}, {"b": ("f32", ONES)}])
    missing = tmp_path / "model-00002-of-00002.safetensors"
    missing.unlink()

    with pytest.raises(ModelLoadError, match="No such file") as caught:
        read_safetensors(tmp_path)

    assert caught.value.path == missing


def test_a_tensor_in_two_shards_is_rejected(tmp_path: Path) -> None:
    ones = ("f32", ONES)
    write_shards(tmp_path, [{"a": ones, "b": ones}, {"a": ones, "c": ones}])

    with pytest.raises(ModelLoadError, match="tensor is also in model-00001") as caught:
        read_safetensors(tmp_path)

    assert caught.value.tensor == "a"


def test_a_tensor_missing_from_its_shard_is_reported(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", {"a": ("f32", ONES)})
    write_index(tmp_path, {"a": "x.safetensors", "b": "x.safetensors"})

    with pytest.raises(
        ModelLoadError, match=r"x\.safetensors, which does not contain it"
    ) as caught:
        read_safetensors(tmp_path)

    assert caught.value.tensor == "b"


@pytest.mark.parametrize(
    "weight_map",
    [None, 5, {"a": 5}, {"a": "../x.safetensors"}, {"a": ""}, {"a": ".."}, {"a": "x\0y"}],
)
def test_an_invalid_index_is_rejected(tmp_path: Path, weight_map: object) -> None:
    write_index(tmp_path, weight_map)

    with pytest.raises(ModelLoadError, match=r"weight_map must map|must be a plain file name"):
        read_safetensors(tmp_path)


def test_an_index_that_is_not_json_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text("{")

    with pytest.raises(ModelLoadError, match="invalid JSON"):
        read_safetensors(tmp_path)


def test_the_newer_mlc_index_file_is_preferred(tmp_path: Path) -> None:
    write_mlc(tmp_path, [(mlc_record("old", ONES), ONES)], index_name="ndarray-cache.json")
    write_mlc(tmp_path, [(mlc_record("new", ONES), ONES)])

    assert read_mlc(tmp_path).tensors.keys() == {"new"}


def test_a_directory_without_an_mlc_index_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"neither tensor-cache\.json nor ndarray-cache"):
        read_mlc(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"records": [{}]}'])
def test_an_mlc_index_with_a_wrong_schema_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "tensor-cache.json").write_text(content)

    with pytest.raises(ModelLoadError, match=r"tensor-cache\.json: invalid (JSON|weight index)"):
        read_mlc(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "zip"}, "unknown tensor format 'zip'"),
        ({"nbytes": 20}, r"expected 24 bytes for float32 \[2, 3\], got 20"),
        ({"format": "f32-to-bf16"}, r"expected 12 bytes for float32 \[2, 3\], got 24"),
        ({"byteOffset": 40}, "ends at byte 64, shard has 56"),
        ({"name": "b"}, "tensor is also in"),
    ],
)
def test_an_invalid_mlc_record_is_rejected(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    edit_mlc_index(write_small_mlc(tmp_path), **changes)

    with pytest.raises(ModelLoadError, match=message) as caught:
        read_mlc(tmp_path)

    assert caught.value.tensor == changes.get("name", "a")


def test_a_truncated_or_missing_mlc_shard_is_reported(tmp_path: Path) -> None:
    shard = write_small_mlc(tmp_path) / "params_shard_0.bin"

    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ModelLoadError, match="expected 56 bytes, got 55") as truncated:
        read_mlc(tmp_path)

    shard.unlink()
    with pytest.raises(ModelLoadError, match="No such file") as missing:
        read_mlc(tmp_path)

    assert truncated.value.path == missing.value.path == shard


@pytest.mark.parametrize("name", ["../x.bin", "x\0.bin", "/x.bin"])
def test_an_mlc_shard_outside_of_its_directory_is_rejected(tmp_path: Path, name: str) -> None:
    index = {"records": [{"dataPath": name, "nbytes": 0, "records": []}]}
    (tmp_path / "tensor-cache.json").write_text(json.dumps(index))

    with pytest.raises(ModelLoadError, match="must be a plain file name"):
        read_mlc(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "tensor-cache.json"])
def test_a_fifo_in_place_of_a_weight_file_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)

    with pytest.raises(ModelLoadError, match="must be a regular file, got a FIFO") as caught:
        read_source(ConfigFiles(tmp_path))

    assert caught.value.path == tmp_path / name


def test_a_fifo_in_place_of_a_shard_is_refused(tmp_path: Path) -> None:
    shard = write_small_mlc(tmp_path) / "params_shard_0.bin"
    shard.unlink()
    os.mkfifo(shard)

    with pytest.raises(ModelLoadError, match="must be a regular file, got a FIFO") as caught:
        read_source(ConfigFiles(tmp_path))

    assert caught.value.path == shard


def test_a_shard_name_that_is_too_long_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    write_index(tmp_path, {"a": "x" * 300})

    with pytest.raises(ModelLoadError, match="File name too long"):
        read_safetensors(tmp_path)
