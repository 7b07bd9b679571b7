"""Faults of safetensors files: in their headers, in one entry of them, in the data of a tensor."""

from __future__ import annotations

__all__ = ("SAFETENSORS_KINDS",)

import json
import math
import random
from pathlib import Path
from typing import Any

from tests.model.loading.tensor_fault import Fault, TensorFault, flip, poison

_Entries = dict[str, dict[str, Any]]
_LENGTHS = (0, 1, 2, 7, 2**16, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1)
_OFFSETS = (-1, 1, 2, 4, 64, 2**20, 2**31, 2**32, 2**62, 2**63, 2**64, 10**30, -(2**31))
_SIZES = (-1, 0, 1, 2, 3, 2**16, 2**31, 2**32, 2**62, 2**63, 2**64, 10**30, 1.5, None, "8", True)
_DTYPES: tuple[object, ...] = (
    *("F32", "F16", "BF16", "I32", "I8", "F8_E4M3", "F8_E5M2", "F64", "I64", "U8", "BOOL", "F4"),
    *("f32", "", "x" * 5000, "F32\0", None, 7, ["F32"], {}),
)
_NAMES = (
    *("", "x", "x" * 100_000, "a\0b", "../../x", "\ud800", "ä中🙂", "__metadata__", "\x1b[2J"),
    "model.layers.999999.mlp.up_proj.weight",
    "model.layers.-1.mlp.up_proj.weight",
)
_DEPTH = 100_000


def _read(path: Path) -> tuple[_Entries, bytes]:
    """Return the header without its metadata, and the data of the tensors."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header.pop("__metadata__", None)
    return header, content[end:]


def _write(path: Path, header: bytes, data: bytes) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def _encode(header: object) -> bytes:
    return json.dumps(header).encode()


def _change_an_offset(path: Path, rng: random.Random) -> TensorFault:
    entries, data = _read(path)
    name = rng.choice(list(entries))
    offsets = entries[name]["data_offsets"]
    which, change = rng.choice(((0,), (1,), (0, 1))), rng.choice(_OFFSETS)
    for index in which:
        offsets[index] += change
    _write(path, _encode(entries), data)
    return TensorFault(f"data_offsets changed by {change} to {offsets}", (name,), is_fatal=True)


def _overlap(path: Path, rng: random.Random) -> TensorFault | None:
    """Give a tensor the bytes of another one of the same size."""
    entries, data = _read(path)
    name = rng.choice(list(entries))
    size = _num_bytes(entries[name])
    others = [each for each in entries if each != name and _num_bytes(entries[each]) == size]
    if not others:
        return None

    other = rng.choice(others)
    entries[name]["data_offsets"] = entries[other]["data_offsets"]
    _write(path, _encode(entries), data)
    return TensorFault("the same bytes", (name, other), is_fatal=True)


def _swap_offsets(path: Path, rng: random.Random) -> TensorFault:
    """Exchange the places of two tensors, so that entries are unsorted."""
    entries, data = _read(path)
    one, two = rng.sample(list(entries), 2)
    places = entries[one]["data_offsets"], entries[two]["data_offsets"]
    entries[two]["data_offsets"], entries[one]["data_offsets"] = places
    _write(path, _encode(entries), data)
    is_fatal = _num_bytes(entries[one]) != _num_bytes(entries[two])
    return TensorFault("exchanged offsets", (one, two), is_fatal)


def _change_a_shape(path: Path, rng: random.Random) -> TensorFault:
    entries, data = _read(path)
    name = rng.choice(list(entries))
    entry = entries[name]
    shape = list(entry["shape"])
    index, kind = rng.randrange(len(shape)), rng.randrange(5)
    if kind == 0:
        shape = shape[::-1]
    elif kind == 1:
        shape = [math.prod(shape)]
    elif kind == 2:
        shape = [rng.choice(_SIZES), *shape] * rng.choice((1, 5))
    elif kind == 3:
        shape[index] = rng.choice(_SIZES)
    else:  # A consistent entry of the wrong size, so that only the config contradicts it.
        shape[index] = 1
        begin, end = entry["data_offsets"]
        entry["data_offsets"] = [begin, begin + (end - begin) // entry["shape"][index]]
    entry["shape"] = shape
    _write(path, _encode(entries), data)
    return TensorFault(f"shape {str(shape)[:80]}", (name,))


def _change_a_dtype(path: Path, rng: random.Random) -> TensorFault:
    entries, data = _read(path)
    name = rng.choice(list(entries))
    entries[name]["dtype"] = dtype = rng.choice(_DTYPES)
    _write(path, _encode(entries), data)
    return TensorFault(f"dtype {str(dtype)[:20]!r}", (name,))


def _break_an_entry(path: Path, rng: random.Random) -> TensorFault:
    entries, data = _read(path)
    name = rng.choice(list(entries))
    values: Any = (None, [], 7, "x", {}, {"dtype": "F32"}, entries[name] | {"shape": {}})
    entries[name] = rng.choice(values)
    _write(path, _encode(entries), data)
    return TensorFault(f"entry {str(entries[name])[:40]}", (name,), is_fatal=True)


def _duplicate(path: Path, rng: random.Random) -> TensorFault:
    """Add a second entry with the name of another one."""
    entries, data = _read(path)
    name, other = rng.choices(list(entries), k=2)
    entry = rng.choice((entries[name], entries[other], {}))
    text = _encode(entries)[:-1] + b", " + _encode({name: entry})[1:]
    _write(path, text, data)
    return TensorFault("a second entry", (name,), is_fatal=True)


def _rename(path: Path, rng: random.Random) -> TensorFault | str:
    entries, data = _read(path)
    name = rng.choice(list(entries))
    new = rng.choice((*_NAMES, name.upper(), f"{name} ", f"{name}\0"))
    renamed = {(new if key == name else key): value for key, value in entries.items()}
    _write(path, _encode(renamed), data)
    # An empty name is refused, and a lone surrogate is not JSON, so that no name can be read.
    is_unreadable = new in ("", "\ud800")
    return f" {name} to {new!r}" if is_unreadable else TensorFault(f"{new[:20]!r}", (name,))


def _write_invalid_utf8(path: Path, rng: random.Random) -> None:
    entries, data = _read(path)
    name = rng.choice(list(entries)).encode()
    garbage = rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x00", b"\n"))
    _write(path, _encode(entries).replace(name, name + garbage, 1), data)


def _nest(path: Path, rng: random.Random) -> str:
    """Insert JSON that is nested deeply, or numbers that are long."""
    entries, data = _read(path)
    texts = (
        *("[" * _DEPTH, "[" * _DEPTH + "]" * _DEPTH, '{"a":' * _DEPTH + "1" + "}" * _DEPTH),
        *("9" * _DEPTH, "1e999", "NaN", "-0", "-" + "9" * 400),
    )
    text = rng.choice(texts)
    name = rng.choice(list(entries))
    field = rng.choice(("__metadata__", "new", "dtype", "shape", "data_offsets"))
    if field in entries[name]:
        entries[name][field] = "HERE"
    else:
        entries[field] = "HERE"  # type: ignore[assignment]
    _write(path, _encode(entries).replace(b'"HERE"', text.encode()), data)
    return f" {text[:9]} as {field} of {name}"


def _change_the_length(path: Path, rng: random.Random) -> str:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    near = (length - 1, length + 1, len(content) - 8, len(content) - 7, len(content))
    new = rng.choice((*_LENGTHS, *near))
    path.write_bytes(new.to_bytes(8, "little") + content[8:])
    return f" to {new}"


def _flip_header(path: Path, rng: random.Random) -> str:
    length = int.from_bytes(path.read_bytes()[:8], "little")
    return flip(path, rng, 0, 8 + length)


def _flip_data(path: Path, rng: random.Random) -> str:
    data = _read(path)[1]
    size = path.stat().st_size
    return flip(path, rng, size - len(data), size)


def _poison_a_tensor(path: Path, rng: random.Random) -> TensorFault:
    entries, data = _read(path)
    name = rng.choice(list(entries))
    first = path.stat().st_size - len(data)
    begin, end = entries[name]["data_offsets"]
    return TensorFault(poison(path, rng, first + begin, first + end), (name,))


def _num_bytes(entry: dict[str, Any]) -> int:
    begin, end = entry["data_offsets"]
    return int(end - begin)


SAFETENSORS_KINDS: tuple[Fault, ...] = (
    *(_change_an_offset, _change_an_offset, _overlap, _swap_offsets),
    *(_change_a_shape, _change_a_shape, _change_a_dtype, _change_a_dtype, _break_an_entry),
    *(_duplicate, _rename, _write_invalid_utf8, _nest, _change_the_length),
    *(_flip_header, _flip_data, _flip_data, _poison_a_tensor, _poison_a_tensor),
)
