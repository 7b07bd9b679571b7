"""Headers of GGUF files are read exactly, and what is wrong with one is named."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.shards import find_gguf, model_name
from aiomlc.gguf.tensor_types import TENSOR_TYPES
from tests.unit.gguf.files import write_metadata

_STRING, _ARRAY = 8, 9


def _text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def _key(name: str, kind: int, value: bytes) -> bytes:
    return _text(name) + struct.pack("<I", kind) + value


def _tensor(name: str, sizes: Sequence[int], kind: int = 0, offset: int = 0) -> bytes:
    shape = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return _text(name) + shape + struct.pack("<IQ", kind, offset)


def _file(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: int = 0,
    *,
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    tensor_count, key_count = counts or (len(tensors), len(keys))
    header = b"GGUF" + struct.pack("<IQQ", version, tensor_count, key_count)
    header += b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + bytes(data)


def test_every_type_of_value_is_read(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "u8": 200,
        "i8": -100,
        "u16": 60000,
        "i16": -30000,
        "u32": 2**32 - 1,
        "i32": -(2**31),
        "u64": 2**64 - 1,
        "i64": -(2**63),
        "f32": 1e-6,
        "f64": 0.1,
        "bool": True,
        "text": "zwölf 🙂 \n",
        "empty": "",
        "long": "x" * 200_000,
    }
    arrays: dict[str, list[Any]] = {
        "texts": ["a", "", "ü"],
        "many": [f"token {index}" for index in range(30_000)],
        "integers": [1, -2, 3],
        "floats": [0.5, -1.5],
        "flags": [True, False],
        "nested": [[1, 2], [3]],
        "deep": [[["a"], ["b", "c"]]],
    }

    def fill(writer: gguf.GGUFWriter) -> None:
        types = gguf.GGUFValueType
        kinds = {
            "u8": types.UINT8,
            "i8": types.INT8,
            "u16": types.UINT16,
            "i16": types.INT16,
            "u32": types.UINT32,
            "i32": types.INT32,
            "u64": types.UINT64,
            "i64": types.INT64,
            "f32": types.FLOAT32,
            "f64": types.FLOAT64,
            "bool": types.BOOL,
        }
        for name, value in values.items():
            writer.add_key_value(name, value, kinds.get(name, types.STRING))
        for name, value in arrays.items():
            writer.add_array(name, value)

    metadata = read_gguf(write_metadata(tmp_path / "a.gguf", fill)).metadata

    for name, value in (values | arrays).items():
        assert metadata.value(name) == value, name
        assert type(metadata.value(name)) is type(value), name
    assert metadata.value("none") is None


def test_tensors_have_the_shapes_and_offsets_of_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    arrays: dict[str, NDArray[Any]] = {
        "one": np.arange(5, dtype=np.float32),
        "two": np.arange(12, dtype=np.float16).reshape(3, 4),
        "three": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    tensors = read_gguf(path).tensors

    content = path.read_bytes()
    for name, array in arrays.items():
        tensor = tensors[name]
        assert tensor.shape == array.shape
        assert content[tensor.offset : tensor.offset + tensor.nbytes] == array.tobytes()


def test_block_sizes_are_those_of_ggml() -> None:
    expected = {kind.value: (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}

    actual = {
        number: (kind.name, kind.block_size, kind.block_bytes)
        for number, kind in TENSOR_TYPES.items()
    }

    assert {number: actual[number] for number in expected} == expected


_HUGE = 2**63
_BIG_ENDIAN = b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
_PROBLEMS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "truncated: its header does not end within its 0 bytes"),
    "magic": (b"GGML" + bytes(100), "is not a GGUF file: it starts with b'GGML'"),
    "version 1": (_file(version=1), "has version 1 of GGUF; supported: 2, 3"),
    "version": (_file(version=77), "has version 77 of GGUF"),
    "big-endian": (_BIG_ENDIAN, "is big-endian, which is not supported"),
    "keys": (_file(counts=(0, _HUGE)), "the number of metadata keys must be <= "),
    "tensors": (_file(counts=(_HUGE, 0)), "the number of tensors must be <= "),
    "cut": (_file([_key("a", 4, bytes(4))])[:36], "truncated"),
    "key length": (
        _file([struct.pack("<Q", _HUGE)], counts=(0, 1)) + bytes(99),
        "the name of a metadata key must have 1 to 1024 bytes",
    ),
    "key bytes": (
        _file([_text(b"\xff") + bytes(12)]),
        "the name of a metadata key must be printable UTF-8",
    ),
    "value type": (_file([_key("a", 13, bytes(8))]), "a has the type 13"),
    "string length": (_file([_key("a", _STRING, struct.pack("<Q", _HUGE))]), "truncated"),
    "array length": (
        _file([_key("a", _ARRAY, struct.pack("<IQ", 4, _HUGE))]),
        "truncated",
    ),
    "string array": (
        _file([_key("a", _ARRAY, struct.pack("<IQQ", _STRING, 2**40, 1))]),
        "truncated",
    ),
    "string in array": (
        _file([_key("a", _ARRAY, struct.pack("<IQQQ", _STRING, 2, 2**64 - 9, 1))]),
        "truncated",
    ),
    "nesting": (
        _file([_key("a", _ARRAY, struct.pack("<IQ", _ARRAY, 1) * 9)]),
        "a nests arrays more than 4 deep",
    ),
    "nested length": (
        _file([_key("a", _ARRAY, struct.pack("<IQ", _ARRAY, 2**60))]),
        "truncated",
    ),
    "key twice": (_file([_key("a", 0, b"\0")] * 2 + [_key("b" * 9, 0, b"\0")]), "a is there twice"),
    "alignment 0": (
        _file([_key("general.alignment", 4, bytes(4))]),
        "general.alignment must be a power of two",
    ),
    "alignment 48": (
        _file([_key("general.alignment", 4, struct.pack("<I", 48))]),
        "general.alignment must be a power of two up to 1048576, got 48",
    ),
    "no dimensions": (_file((), [_tensor("x", [])], 99), "x: must have 1 to 4 dimensions, got 0"),
    "dimensions": (_file((), [_tensor("x", [1] * 5)], 99), "x: must have 1 to 4 dimensions, got 5"),
    "size 0": (_file((), [_tensor("x", [0])], 99), "x: its shape is invalid"),
    "overflow": (_file((), [_tensor("x", [2**32, 2**32])], 99), "x: its shape is invalid"),
    "tensor type": (_file((), [_tensor("x", [1], 4)], 99), "x: its type 4 is not a tensor type"),
    "row size": (
        _file((), [_tensor("x", [33], 2)], 99),
        "x: its row size must be a multiple of 32 for Q4_0, got 33",
    ),
    "offset": (
        _file((), [_tensor("x", [1], offset=4)], 99),
        "x: its offset must be a multiple of 32, got 4",
    ),
    "end": (
        _file((), [_tensor("x", [4], offset=32)], 40),
        "x: truncated: the tensor ends at byte",
    ),
    "huge offset": (_file((), [_tensor("x", [4], offset=_HUGE)], 40), "x: truncated"),
    "overlap": (
        _file((), [_tensor("x", [16]), _tensor("y", [8], offset=32)], 64),
        "y: the tensor overlaps x",
    ),
    "tensor twice": (
        _file((), [_tensor("x", [1]), _tensor("x", [1], offset=32)], 64),
        "x: the tensor is there twice",
    ),
}


@pytest.mark.parametrize("name", _PROBLEMS)
def test_an_invalid_header_is_refused(tmp_path: Path, name: str) -> None:
    content, problem = _PROBLEMS[name]
    path = tmp_path / "a.gguf"
    path.write_bytes(content)

    with pytest.raises(ModelLoadError) as caught:
        read_gguf(path)

    assert str(caught.value).startswith(f"{path}: {problem}")
    assert caught.value.path == path


def test_an_invalid_value_names_its_key(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(_file([_key("a", 7, b"\x02"), _key("b", _STRING, _text(b"\xff"))]))
    metadata = read_gguf(path).metadata

    with pytest.raises(ModelLoadError, match=r"a must be false \(0\) or true \(1\), got 2"):
        metadata.boolean("a", False)
    with pytest.raises(ModelLoadError, match="b must be UTF-8"):
        metadata.string("b")
    with pytest.raises(ModelLoadError, match="c is missing"):
        metadata.integer("c")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    fifo = tmp_path / "a.gguf"
    os.mkfifo(fifo)

    with pytest.raises(ModelLoadError, match="must be a regular file, got a FIFO"):
        read_gguf(fifo)
    with pytest.raises(ModelNotFoundError):
        read_gguf(tmp_path / "none.gguf")


def test_a_modified_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(_file([_key("a", 0, b"\x01")]))
    os.utime(path, ns=(0, 0))
    assert read_gguf(path).metadata.value("a") == 1

    path.write_bytes(_file([_key("a", 0, b"\x02")]))

    assert read_gguf(path).metadata.value("a") == 2


def test_a_file_that_changes_between_header_and_value_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(_file([_key("a", _STRING, _text("x" * 100_000))]))
    metadata = read_gguf(path).metadata

    path.write_bytes(_file([_key("a", _STRING, _text("y" * 100_001))]))

    with pytest.raises(ModelLoadError, match="changed while it was read"):
        metadata.string("a")


def _write_split(directory: Path, count: int = 3) -> list[Path]:
    writer = gguf.GGUFWriter(directory / "m.gguf", "llama", split_max_tensors=1)
    for index in range(count):
        writer.add_tensor(f"t{index}", np.full(8, index, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(directory.glob("*.gguf"))


def test_the_shards_of_a_model_are_read_together(tmp_path: Path) -> None:
    paths = _write_split(tmp_path)
    assert [path.name for path in paths] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]

    model = read_gguf(paths[1])

    assert model.path == paths[0]
    assert model.files == tuple(paths)
    assert {name: tensor.path for name, tensor in model.tensors.items()} == {
        f"t{index}": path for index, path in enumerate(paths)
    }
    assert find_gguf(tmp_path) == find_gguf(paths[2]) == paths[0]
    assert model_name(paths[0]) == "m"


def test_shards_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    first, second, third = _write_split(tmp_path)

    with pytest.raises(ModelLoadError, match=r"split.count must be 1, its name has no number"):
        read_gguf(first.rename(tmp_path / "x.gguf"))
    with pytest.raises(ModelNotFoundError, match="00001-of-00003"):
        read_gguf(second)
    (tmp_path / "x.gguf").rename(first)
    second.rename(tmp_path / "other.gguf")
    third.rename(second)
    (tmp_path / "other.gguf").rename(third)
    with pytest.raises(ModelLoadError, match=f"{second}: split.no must be 1, got 2"):
        read_gguf(first)


def test_a_directory_with_several_models_is_refused_with_their_names(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf", "mmproj-a.gguf"):
        (tmp_path / name).write_bytes(_file())

    with pytest.raises(ModelLoadError, match=r"contains 2 models in GGUF.*: a.gguf, b.gguf"):
        find_gguf(tmp_path)
    (tmp_path / "b.gguf").unlink()
    assert find_gguf(tmp_path) == tmp_path / "a.gguf"
    (tmp_path / "model.safetensors").touch()
    assert find_gguf(tmp_path) is None
