"""GGUF files, and faults in one number, one text or one length of their headers."""

from __future__ import annotations

__all__ = ("GGUF_BASES", "GGUF_HEADER_KINDS", "write_gguf_bases")

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import gguf

from tests.model.gguf_blocks import TYPE_SETS, encoder
from tests.model.gguf_files import add_tiny_text, write_gguf, write_tiny_gguf
from tests.model.loading.gguf_tensor_mutations import end_of_header
from tests.model.loading.tensor_fault import Fault
from tests.model.tiny_models import TINY_CONFIGS, random_weights

# Every type of blocks is in one of the sets.
GGUF_BASES = ("gguf", "gguf_shards", *(f"gguf {name}" for name in TYPE_SETS if name != "Q8_0"))

_ALIGNMENT = 32
_NUMBERS: tuple[int, ...] = (
    *(0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 31, 33, 255, 256, 257, 1000, 65535, 10**9),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48, 2**63 - 1, 2**63, 2**64 - 9, 2**64 - 1),
)
# The rows of all types consist of whole blocks.
_LARGER = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "head_dim": 64}
_TEXTS = ("", "x", "x" * 5000, "a\0b", "../x", "{% for x in y %}", "ä中🙂", "qwen2", "t5", "llama")


def write_gguf_bases(root: Path) -> None:
    """Write an intact directory for each of `GGUF_BASES`."""
    write_tiny_gguf(root / "gguf" / "model.gguf", "llama", encoder(TYPE_SETS["Q8_0"]))
    write_tiny_gguf(root / "gguf_shards" / "model.gguf", "qwen2", split_max_tensors=9)
    config = TINY_CONFIGS["llama"] | _LARGER
    weights = random_weights(config, seed=5)
    for name in GGUF_BASES[2:]:
        encode = encoder(TYPE_SETS[name.removeprefix("gguf ")])
        write_gguf(root / name / "model.gguf", config, weights, add_tiny_text, encode)


def _change_number(path: Path, rng: random.Random) -> str:
    """Overwrite a length, a type, a count, an offset or a number."""
    content = bytearray(path.read_bytes())
    name, start, size = rng.choice([part for part in _parts(path, rng) if part[2] in (1, 4, 8)])
    number = rng.choice(_NUMBERS) % 256**size
    content[start : start + size] = number.to_bytes(size, "little")
    path.write_bytes(content)
    return f" in {name} at {start} to {number}"


def _change_text(path: Path, rng: random.Random) -> str:
    """Replace a name or a text by another one of any length, and leave the rest intact."""
    content = path.read_bytes()
    reader = gguf.GGUFReader(path)
    parts = list(_parts(path, rng))
    pairs = [(one, two) for one, two in itertools.pairwise(parts) if one[2] == 8]
    length, text = rng.choice([(one, two) for one, two in pairs if _is_text(content, one, two)])
    new = rng.choice(_TEXTS).encode()
    header = content[: length[1]] + len(new).to_bytes(8, "little") + new
    header += content[text[1] + text[2] : end_of_header(reader)]
    data = content[reader.data_offset :]
    path.write_bytes(header + bytes(-len(header) % _ALIGNMENT) + data)
    return f" in {length[0]} to {new[:20]!r}"


def _truncate_header(path: Path, rng: random.Random) -> str:
    end = rng.randrange(gguf.GGUFReader(path).data_offset)
    path.write_bytes(path.read_bytes()[:end])
    return f" at {end}"


def _flip_header_bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 3, 30))):
        content[rng.randrange(gguf.GGUFReader(path).data_offset)] = rng.randrange(256)
    path.write_bytes(content)


def _parts(path: Path, rng: random.Random) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the offset and the size of the header's elements; of long arrays, a few."""
    reader = gguf.GGUFReader(path)
    yield from (("header", 4, 4), ("header", 8, 8), ("header", 16, 8))
    fields = [field for name, field in reader.fields.items() if not name.startswith("GGUF.")]
    for field in [*fields, *(tensor.field for tensor in reader.tensors)]:
        start = field.offset
        elements = []
        for part in field.parts:
            elements.append((field.name, start, part.nbytes))
            start += part.nbytes
        first = 0 if len(elements) < 40 else 2 * rng.randrange(len(elements) // 2 - 20)
        yield from elements[:8]
        yield from elements[max(8, first) : first + 20]


def _is_text(content: bytes, length: tuple[str, int, int], text: tuple[str, int, int]) -> bool:
    follows = length[1] + 8 == text[1]
    return follows and int.from_bytes(content[length[1] : length[1] + 8], "little") == text[2]


GGUF_HEADER_KINDS: tuple[Fault, ...] = (
    *(_change_number, _change_number, _change_number, _change_number),
    *(_change_text, _change_text, _truncate_header, _flip_header_bytes),
)
