"""`python -m tests.model.loading.guided_readers SECONDS [SEED]`: fuzz readers of untrusted files.

Mutations that reach a line after another one, for the first time, are mutated further, and kept in
`reader_corpus.json`. So is what fails: it is written to stdout, and the exit status is 1. The tests
read the whole corpus.
"""

from __future__ import annotations

__all__ = ("TARGETS", "Target", "load_corpus", "mutated", "targets_in", "trial")

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import gguf
import orjson

import aiomlc
from aiomlc import AiomlcError
from aiomlc.compiler import CompiledLibrary, CompileJob, read_library, write_library
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.text_files import read_tokenizer_json
from aiomlc.models import read_description
from aiomlc.runtime.engine.prefix_piece import KVFormat, new_piece, parse_piece
from aiomlc.weights.formats.directory import read_source
from tests.model.gguf_blocks import TYPE_SETS, encoder
from tests.model.gguf_files import write_tiny_gguf
from tests.model.loading.gguf_tensor_mutations import end_of_header
from tests.model.tiny_models import write_model

CORPUS: Final = Path(__file__).with_name("reader_corpus.json")
_READERS: Final = (
    "gguf",
    "weights/formats",
    "compiler/library_file",
    "runtime/engine/prefix_piece",
)
_NUMBERS: Final = (
    *(0, 1, 2, 7, 8, 9, 31, 32, 33, 127, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1),
    *(2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1),
)
_TEXTS: Final = (
    *(b"null", b"[]", b"{}", b'""', b"-1", b"0", b"1e400", b"1.5", b"NaN", b"true", b"9" * 5000),
    *(b'"\\ud800"', b"[" * 2000, b",", b":", b'"', b"\\u0000", b"\xff", b"../x", b"F16", b"I64"),
)
_MAX_EDITS: Final = 8

#: An offset, the number of bytes that are removed there, and those that are inserted, in hex.
Edit = tuple[int, int, str]
Reach = set[tuple[CodeType, int, int]]


@dataclass(frozen=True)
class Target:
    """A reader, and an intact file for it."""

    base: bytes
    size: int  #: Bytes from the beginning that are mutated.
    read: Callable[[bytes], object]


def targets_in(root: Path) -> dict[str, Target]:
    """Return all targets, which write their files below `root`."""
    return {name: make(root) for name, make in TARGETS.items()}


def _gguf(root: Path) -> Target:
    path = root / "base.gguf"
    write_tiny_gguf(path, "llama", encoder(TYPE_SETS["Q8_0"]))
    count = iter(range(1 << 62))

    def read(data: bytes) -> None:
        changed = root / f"{next(count)}.gguf"  # What was read of a file is remembered by its name.
        changed.write_bytes(data)
        try:
            read_description(changed)
            read_source(ConfigFiles(changed))
            read_tokenizer_json(read_gguf(changed))
        finally:
            changed.unlink()

    return Target(path.read_bytes(), end_of_header(gguf.GGUFReader(path)), read)


def _safetensors(root: Path) -> Target:
    path = write_model(root / "safetensors", "llama") / "model.safetensors"
    base = path.read_bytes()

    def read(data: bytes) -> None:
        path.write_bytes(data)
        read_source(ConfigFiles(path.parent))

    return Target(base, 8 + int.from_bytes(base[:8], "little"), read)


def _library(root: Path) -> Target:
    config = read_description(write_model(root / "library", "llama")).config
    job = CompileJob(config=config, quantization="q0f32")
    path = root / "model.lib"
    write_library(CompiledLibrary(path, bytes(100), {"a": [1]}, ""), job, path)
    base = path.read_bytes()

    def read(data: bytes) -> None:
        path.write_bytes(data)
        read_library(path, job)

    return Target(base, len(base), read)


def _piece(root: Path) -> Target:
    kv_format = KVFormat(
        kv_dtype="int8",
        num_layers=1,
        num_key_value_heads=1,
        row_size=12,
        quantization="q0f32",
        weights="w",
        library="l",
    )
    base = new_piece(kv_format, range(20), 16).finish()[:-32]

    def read(data: bytes) -> None:
        parse_piece(kv_format, data + sha256(data).digest())

    return Target(base, len(base), read)


TARGETS: Final[dict[str, Callable[[Path], Target]]] = {
    "gguf": _gguf,
    "safetensors": _safetensors,
    "library": _library,
    "piece": _piece,
}


def load_corpus() -> dict[str, list[list[Edit]]]:
    """Return the kept mutations by the name of their target."""
    corpus = orjson.loads(CORPUS.read_bytes()) if CORPUS.exists() else {}
    return {
        name: [[_edit(edit) for edit in edits] for edits in corpus.get(name, [])]
        for name in TARGETS
    }


def _edit(values: Sequence[Any]) -> Edit:
    offset, removed, inserted = values
    return int(offset), int(removed), str(inserted)


def apply(edits: Sequence[Edit], data: bytes) -> bytes:
    """Return the data after all edits."""
    for offset, removed, inserted in edits:
        data = data[:offset] + bytes.fromhex(inserted) + data[offset + removed :]
    return data


def mutated(edits: Sequence[Edit], target: Target, rng: random.Random) -> list[Edit]:
    """Return the edits and a few more, at random."""
    kept = list(edits)[-_MAX_EDITS:]
    return [*kept, *(_random_edit(target, rng) for _ in range(rng.choice((1, 1, 1, 2, 3))))]


def _random_edit(target: Target, rng: random.Random) -> Edit:
    offset = rng.randrange(target.size)
    length = rng.choice((1, 2, 4, 8, 8, 16, 100))
    match rng.randrange(6):
        case 0:
            data = rng.randbytes(min(length, 8))
            return offset, len(data), data.hex()
        case 1:
            width = rng.choice((1, 2, 4, 8, 8))
            number = rng.choice(_NUMBERS) % 256**width
            return offset, width, number.to_bytes(width, "little").hex()
        case 2:
            return offset, length, ""
        case 3:
            begin = rng.randrange(target.size)
            return offset, rng.choice((0, length)), target.base[begin : begin + length].hex()
        case 4:
            return offset, 1, bytes([target.base[offset] ^ 1 << rng.randrange(8)]).hex()
        case _:
            return offset, rng.choice((0, 1, length)), rng.choice(_TEXTS).hex()


def trial(target: Target, edits: Sequence[Edit]) -> str | None:
    """Return what is wrong with how mutated data is read; None if it is refused, or is read."""
    try:
        target.read(apply(edits, target.base))
    except AiomlcError as error:
        return None if len(str(error)) < 2000 else f"a message of {len(str(error))} characters"
    except Exception as error:  # noqa: BLE001 - the result of the trial.
        return f"{type(error).__name__}: {error}"

    return None


@contextmanager
def _reached() -> Iterator[Reach]:
    """Collect which lines of the readers follow which."""
    root = str(Path(aiomlc.__file__).parent)
    prefixes = tuple(f"{root}/{name}" for name in _READERS)
    reach: Reach = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(prefixes):
            return None

        previous = 0

        def line(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
            nonlocal previous
            if event == "line":
                reach.add((code, previous, frame.f_lineno))
                previous = frame.f_lineno
            return line

        return line

    sys.settrace(trace)
    try:
        yield reach
    finally:
        sys.settrace(None)


def _fuzz(name: str, target: Target, corpus: list[list[Edit]], end: float, seed: int) -> bool:
    """Extend the corpus until the time has come; return whether all went well."""
    rng, known, count, is_good = random.Random(seed), set[Any](), 0, True
    for edits in ([], *corpus):
        with _reached() as reach:
            trial(target, edits)
        known |= reach
    while time.monotonic() < end:
        edits = mutated(rng.choice([[], *corpus]), target, rng)
        count += 1
        with _reached() as reach:
            problem = trial(target, edits)
        if problem is not None and (kind := problem[:20]) not in known:
            is_good = False
            known.add(kind)
            corpus.append(edits)
            sys.stdout.write(f"{name}: {edits}: {problem}\n")
        elif problem is None and not reach <= known:
            known |= reach
            corpus.append(edits)
    sys.stdout.write(f"{name}: {count} mutations, {len(known)} steps, {len(corpus)} kept\n")
    return is_good


def main(arguments: list[str]) -> int:
    """Fuzz each target for its share of the time, and write the corpus."""
    seconds, seed = float(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    corpus = load_corpus()
    with tempfile.TemporaryDirectory() as root:
        results = [
            _fuzz(name, target, corpus[name], time.monotonic() + seconds / len(TARGETS), seed)
            for name, target in targets_in(Path(root)).items()
        ]
    lines = (
        f" {json.dumps(name)}: [\n" + ",\n".join(f"  {json.dumps(e)}" for e in kept) + "\n ]"
        for name, kept in corpus.items()
    )
    CORPUS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
