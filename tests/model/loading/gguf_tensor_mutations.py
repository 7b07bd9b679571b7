"""Faults of the tensors of a GGUF file, of its alignment and of its shards."""

from __future__ import annotations

__all__ = ("GGUF_SHARD_KINDS", "GGUF_TENSOR_KINDS", "end_of_header")

import random
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

import gguf

from tests.model.loading.tensor_fault import Fault, TensorFault, flip, poison

_TYPES = (*range(48), 255, 2**31, 2**32 - 1)
_SIZES = (0, 1, 2, 32, 255, 256, 2**31, 2**32, 2**48, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_OFFSETS = (1, 16, 31, 32, 256, 2**20, 2**31, 2**32, 2**62, 2**63, 2**64 - 32, 2**64 - 1)
_NAMES = (b"", b"\0", b"a\0b", b"\xff\xfe", b"\xed\xa0\x80", b"x" * 100, b"x" * 100_000, b"\x1b[2J")
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _UINT64 = 4, 6, 7, 8, 9, 10


@dataclass(frozen=True)
class _Info:
    """A tensor of a file, and where what the header says of it is."""

    name: str
    start: int  #: Of the length of its name.
    sizes: int  #: Of its first size.
    num_sizes: int
    data: int
    nbytes: int

    @property
    def type(self) -> int:
        return self.sizes + 8 * self.num_sizes

    @property
    def offset(self) -> int:
        return self.type + 4

    @property
    def end(self) -> int:
        return self.offset + 8


def end_of_header(reader: gguf.GGUFReader) -> int:
    """Return where the last tensor info ends."""
    last = reader.tensors[-1].field
    return int(last.offset + sum(part.nbytes for part in last.parts))


def _infos(reader: gguf.GGUFReader) -> list[_Info]:
    return [
        _Info(
            tensor.name,
            tensor.field.offset,
            tensor.field.offset + 8 + len(tensor.name.encode()) + 4,
            len(tensor.shape),
            tensor.data_offset,
            int(tensor.n_bytes),
        )
        for tensor in reader.tensors
    ]


def _choose(path: Path, rng: random.Random) -> _Info:
    return rng.choice(_infos(gguf.GGUFReader(path)))


def _overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def _splice(path: Path, start: int, end: int, new: bytes) -> None:
    """Replace bytes of the header, and leave the data of the tensors intact."""
    reader = gguf.GGUFReader(path)
    content = path.read_bytes()
    header = content[:start] + new + content[end : end_of_header(reader)]
    padding = bytes(-len(header) % reader.alignment)
    path.write_bytes(header + padding + content[reader.data_offset :])


# ---- Tensor infos ----


def _change_a_type(path: Path, rng: random.Random) -> TensorFault:
    info, number = _choose(path, rng), rng.choice(_TYPES)
    _overwrite(path, info.type, struct.pack("<I", number))
    return TensorFault(f"type {number}", (info.name,))


def _change_a_size(path: Path, rng: random.Random) -> TensorFault:
    info, size = _choose(path, rng), rng.choice(_SIZES)
    index = rng.randrange(info.num_sizes)
    _overwrite(path, info.sizes + 8 * index, struct.pack("<Q", size))
    # The rows of the embedding are the vocabulary, which the head contradicts then.
    names = (info.name, "output.weight") if info.name == "token_embd.weight" else (info.name,)
    return TensorFault(f"size {index} of {size}", names)


def _change_an_offset(path: Path, rng: random.Random) -> TensorFault:
    info, change = _choose(path, rng), rng.choice(_OFFSETS)
    (offset,) = struct.unpack_from("<Q", path.read_bytes(), info.offset)
    new = (offset + change) % 2**64
    _overwrite(path, info.offset, struct.pack("<Q", new))
    return TensorFault(f"offset {new}", (info.name,), is_fatal=new % 32 != 0)


def _overlap(path: Path, rng: random.Random) -> TensorFault:
    """Give two tensors one offset."""
    one, two = rng.sample(_infos(gguf.GGUFReader(path)), 2)
    content = path.read_bytes()
    _overwrite(path, one.offset, content[two.offset : two.offset + 8])
    return TensorFault("one offset", (one.name, two.name), is_fatal=True)


def _swap_offsets(path: Path, rng: random.Random) -> TensorFault:
    """Exchange the places of two tensors, so that offsets are unsorted."""
    one, two = rng.sample(_infos(gguf.GGUFReader(path)), 2)
    content = path.read_bytes()
    _overwrite(path, one.offset, content[two.offset : two.offset + 8])
    _overwrite(path, two.offset, content[one.offset : one.offset + 8])
    return TensorFault("exchanged offsets", (one.name, two.name), one.nbytes != two.nbytes)


def _duplicate(path: Path, rng: random.Random) -> TensorFault:
    """Give one tensor the info of another one, or add it once more."""
    one, two = rng.sample(_infos(gguf.GGUFReader(path)), 2)
    content = path.read_bytes()
    if rng.random() < 0.5:
        _splice(path, one.start, one.end, content[two.start : two.end])
    else:
        _splice(path, one.end, one.end, content[two.start : two.end])
        (count,) = struct.unpack_from("<Q", content, 8)
        _overwrite(path, 8, struct.pack("<Q", count + 1))
    return TensorFault("two infos", (two.name,), is_fatal=True)


def _rename(path: Path, rng: random.Random) -> str:
    info, name = _choose(path, rng), rng.choice(_NAMES)
    old = len(info.name.encode())
    _splice(path, info.start, info.start + 8 + old, struct.pack("<Q", len(name)) + name)
    return f" {info.name} to {name[:20]!r}"


# ---- Metadata ----


def _text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _array(kind: int, count: int, items: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + items


def _add_a_key(path: Path, rng: random.Random) -> str:
    """Add an alignment, a deep, long or invalid value, or a key that is invalid or there twice."""
    nested = _array(_ARRAY, 1, b"") * rng.choice((2, 5, 100_000)) + _array(_UINT32, 0, b"")
    alignment = rng.choice((0, 1, 3, 8, 31, 32, 64, 256, 2**20, 2**21, 2**31, 2**32 - 1))
    key, kind, value = rng.choice(
        (
            *[(b"general.alignment", _UINT32, struct.pack("<I", alignment))] * 5,
            (b"general.alignment", _STRING, _text(b"32")),
            (b"general.alignment", _FLOAT32, struct.pack("<f", 32)),
            (b"general.name", _STRING, _text(b"\xff\0")),
            (b"general.flag", _BOOL, b"\7"),
            (b"deep", _ARRAY, nested),
            (b"long", _ARRAY, _array(_STRING, 2**61, b"")),
            (b"long", _ARRAY, _array(_UINT64, 2**61, b"")),
            (b"long", _ARRAY, _array(_ARRAY, 2**60, b"")),
            (b"long", _STRING, struct.pack("<Q", 2**64 - 1)),
            (b"general.architecture", _STRING, _text(b"llama")),
            *[(name, _UINT32, bytes(4)) for name in _NAMES],
        )
    )
    content = path.read_bytes()
    (count,) = struct.unpack_from("<Q", content, 16)
    _splice(path, 24, 24, _text(key) + struct.pack("<I", kind) + value)
    _overwrite(path, 16, struct.pack("<Q", count + 1))
    return f" {key[:20]!r} of type {kind}: {value[:8].hex()}"


# ---- Data ----


def _flip_data(path: Path, rng: random.Random) -> str:
    return flip(path, rng, gguf.GGUFReader(path).data_offset, path.stat().st_size)


def _poison_a_tensor(path: Path, rng: random.Random) -> TensorFault:
    info = _choose(path, rng)
    detail = poison(path, rng, info.data, info.data + info.nbytes)
    return TensorFault(detail, (info.name,))


def _truncate_data(path: Path, rng: random.Random) -> str:
    """Cut a file off within its data, most often by a few bytes."""
    size = path.stat().st_size
    start = gguf.GGUFReader(path).data_offset
    end = rng.choice((size - 1, size - 17, size - 32, rng.randrange(start, size)))
    with path.open("r+b") as file:
        file.truncate(end)
    return f" at {end}"


# ---- Shards ----


def _replace_a_shard(path: Path, rng: random.Random) -> str:
    """Put a shard in the place of another one."""
    other = rng.choice(sorted(path.parent.glob("*.gguf")))
    shutil.copyfile(other, path.with_name("copy"))
    path.with_name("copy").replace(path)
    return f" by {other.name}"


def _swap_shards(path: Path, rng: random.Random) -> str:
    other = rng.choice(sorted(path.parent.glob("*.gguf")))
    if other != path:
        path.rename(path.with_name("other"))
        other.rename(path)
        path.with_name("other").rename(other)
    return f" with {other.name}"


def _rename_a_shard(path: Path, rng: random.Random) -> str:
    numbers = rng.choice(("00001-of-00002", "00000-of-00003", "99999-of-99999", "00004-of-00003"))
    path.rename(path.with_name(f"model-{numbers}.gguf"))
    return f" to {numbers}"


GGUF_TENSOR_KINDS: tuple[Fault, ...] = (
    *(_change_a_type, _change_a_type, _change_a_size, _change_an_offset, _overlap, _swap_offsets),
    *(_duplicate, _rename, _add_a_key, _add_a_key),
    *(_flip_data, _flip_data, _flip_data, _poison_a_tensor, _poison_a_tensor, _truncate_data),
)
GGUF_SHARD_KINDS: tuple[Fault, ...] = (_replace_a_shard, _swap_shards, _rename_a_shard)
