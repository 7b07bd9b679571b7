"""Files of `torch.save` are read as data: what a dictionary of tensors does not need is refused."""

from __future__ import annotations

import importlib.util
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.embedding.dense import TensorSource
from aiomlc.weights.formats.torch_file import read_torch_file
from tests.model.make_encoder_reference import REFERENCE
from tests.model.tiny_encoders import TOKEN_HEADS
from tests.mutations import mutated

STORED = REFERENCE / "colbert_linear.pt"
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"


def write_archive(
    path: Path, pickled: bytes, compression: int = zipfile.ZIP_STORED, **files: bytes
) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, data in files.items():
            archive.writestr(f"archive/{name.replace('__', '/')}", data)
    return path


def one_tensor(shape: bytes, strides: bytes, *, numbers: int = 6, offset: int = 0) -> bytes:
    """Return the pickle of a dictionary with the tensor `w` of the storage `0`."""
    storage = TENSOR + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK" + bytes([numbers]) + b"tQ"
    tensor = storage + b"K" + bytes([offset]) + shape + strides + b"\x89}tR"
    return b"\x80\x02}X\x01\x00\x00\x00w" + tensor + b"s."


@pytest.mark.parametrize("name", TOKEN_HEADS)
def test_the_tensors_of_pytorch_are_read(name: str) -> None:
    path = REFERENCE / f"{name}.pt"
    source = TensorSource(path, read_torch_file(path))

    for key, value in TOKEN_HEADS[name].items():
        np.testing.assert_array_equal(source.floats(key, value.shape), value)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_views_and_types_of_this_pytorch_are_read(tmp_path: Path, dtype: str) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    import torch

    values = torch.arange(-8, 40, dtype=getattr(torch, dtype)).reshape(6, 8)
    path = tmp_path / "values.pt"
    torch.save({"all": values, "rows": values[2:4], "one": torch.nn.Parameter(values[0])}, path)
    source = TensorSource(path, read_torch_file(path))

    expected = np.arange(-8, 40, dtype=np.float32).reshape(6, 8)
    np.testing.assert_array_equal(source.floats("all", (6, 8)), expected)
    np.testing.assert_array_equal(source.floats("rows", (None, 8)), expected[2:4])
    np.testing.assert_array_equal(source.floats("one", (8,)), expected[0])


def test_a_tensor_is_read_at_its_offset(tmp_path: Path) -> None:
    pickled = one_tensor(b"K\x02K\x02\x86", b"K\x02K\x01\x86", offset=2)
    data = np.arange(6, dtype="<f4").tobytes()
    path = write_archive(tmp_path / "x.pt", pickled, data__0=data)

    values = TensorSource(path, read_torch_file(path)).floats("w", (2, 2))

    np.testing.assert_array_equal(values, [[2, 3], [4, 5]])


class Attack:
    def __reduce__(self) -> Any:  # noqa: ANN401
        return (exec, ("raise SystemExit('the pickle was run')",))


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (pickle.dumps({"w": Attack()}, 2), "refers to .*exec"),
        (pickle.dumps({"w": Attack()}, 4), "the instruction FRAME"),
        (b"\x80\x02ctorch\nload\n.", "refers to 'torch.load'"),
        (b"\x80\x02ctorch\nLongStorage\n.", "refers to 'torch.LongStorage'"),
        (b"\x80\x02(K\x01K\x02tQ.", "not a storage of floats"),
        (pickle.dumps([1], 2), "the instruction EMPTY_LIST"),
        (pickle.dumps((1,), 2), "must contain a dictionary of tensors"),
        (pickle.dumps({"w": 3}, 2), "'w': must be a name with a tensor"),
        (pickle.dumps({3: 3}, 2), "the name 3, which is no string"),
        (b"\x80\x02h\x01.", "is damaged"),
        (b"\x80\x02s.", "is damaged"),
        (b"\x80\x02K\x01)R.", "calls what is no function"),
        (b"\x80\x02K\x01}b.", "attributes of what is no dictionary"),
        (b"\x80\x02}", "has no end"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "malformed tensor"),
        (b"\x80\x02ctorch._utils\n_rebuild_parameter\n)R.", "malformed parameter"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}b.", "attributes of what is no dictionary"),
        (one_tensor(b"K\x02K\x02\x86", b"K\x01K\x02\x86"), "rows are not contiguous"),
        (one_tensor(b"K\x02N\x86", b"K\x02K\x01\x86"), "malformed tensor"),
        (one_tensor(b"K\x02K\x04\x86", b"K\x04K\x01\x86"), "missing or truncated"),
    ],
)
def test_what_is_no_dictionary_of_tensors_is_refused(
    tmp_path: Path, pickled: bytes, message: str
) -> None:
    path = write_archive(tmp_path / "x.pt", pickled, data__0=bytes(24))

    with pytest.raises(ModelLoadError, match=message) as caught:
        read_torch_file(path)

    assert caught.value.path == path
    assert str(path) in str(caught.value)


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    good = one_tensor(b"K\x06\x85", b"K\x01\x85")
    cases = {
        "must not be compressed": write_archive(tmp_path / "a", good, zipfile.ZIP_DEFLATED),
        "little-endian": write_archive(tmp_path / "b", good, byteorder=b"big"),
        "at most 131,072 bytes": write_archive(tmp_path / "c", bytes(2 << 20)),
        "has no data.pkl": write_archive(tmp_path / "d", good),
    }
    with zipfile.ZipFile(tmp_path / "d", "w") as archive:
        archive.writestr("other/x", b"")
    cases["is not a file of PyTorch 1.6"] = tmp_path / "e"
    (tmp_path / "e").write_bytes(pickle.dumps({}, 2))

    for message, path in cases.items():
        with pytest.raises(ModelLoadError, match=message):
            read_torch_file(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = STORED.read_bytes()
    path = tmp_path / "x.pt"
    for size in range(0, len(content), 61):
        path.write_bytes(content[:size])
        with pytest.raises(ModelLoadError):
            read_torch_file(path)


def test_copies_of_dictionaries_are_refused(tmp_path: Path) -> None:
    """A few bytes would double the memory, again and again."""
    pickled = b"\x80\x02}q\x00X\x01\x00\x00\x00wccollections\nOrderedDict\nh\x00\x85Rs."
    path = write_archive(tmp_path / "values.pt", pickled)

    with pytest.raises(ModelLoadError, match=r"values\.pt: .*is a copy"):
        read_torch_file(path)


# A tuple of two references to a tuple of two references, a hundred times.
DOUBLED = b"K\x01" + b"".join(b"q%ch%c\x86" % (index, index) for index in range(100))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02}" + DOUBLED + b"Ns.",
        b"\x80\x02" + DOUBLED + b"Q.",
        b"\x80\x02}X\x01\x00\x00\x00w" + DOUBLED + b"s.",
        b"\x80\x02ccollections\nOrderedDict\n" + DOUBLED + b"R.",
        one_tensor(DOUBLED, DOUBLED),
    ],
)
def test_a_tuple_that_doubles_is_neither_compared_nor_hashed(
    tmp_path: Path, pickled: bytes
) -> None:
    path = write_archive(tmp_path / "x.pt", pickled, data__0=bytes(24))

    with pytest.raises(ModelLoadError) as caught:
        read_torch_file(path)

    assert len(str(caught.value)) < 1000


def test_random_pickles_are_tensors_or_end_in_typed_errors(tmp_path: Path) -> None:
    random_ = random.Random(0)
    tensor = one_tensor(b"K\x06\x85", b"K\x01\x85")
    pieces = [
        tensor[9:-2],
        *(bytes([byte]) for byte in b"()}tsubRQN0]\x85\x86\x88"),
        b"K\x03",
        b"q\x01",
    ]
    pieces += [b"h\x01", b"X\x01\x00\x00\x00w", b"X\x05\x00\x00\x00items", b"\x8a\x02\xff\xff"]
    pieces += [
        b"ccollections\nOrderedDict\n)R",
        b"ccollections\nOrderedDict\n",
        TENSOR,
        b"cos\nsystem\n",
    ]
    outcomes: list[int | str] = []
    for _ in range(2000):
        middle = b"".join(random_.choices(pieces, k=random_.randrange(8)))
        pickled = random_.choice((b"\x80\x02}" + middle + b".", mutated(tensor, random_)))
        path = write_archive(tmp_path / "x.pt", pickled, data__0=bytes(24))
        try:
            outcomes.append(len(read_torch_file(path)))
        except ModelLoadError as error:
            outcomes.append(str(error))
    errors = {each for each in outcomes if isinstance(each, str)}
    assert len(errors) > 20
    assert all(str(tmp_path) in error and "cannot be interpreted" not in error for error in errors)
    assert {0, 1} <= set(outcomes)
