"""Model directories with one random, seeded fault each."""

from __future__ import annotations

__all__ = ("BASES", "Mutation", "mutate", "write_bases")

import json
import os
import random
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aiomlc.runtime.loading.model_directory import BUNDLED_DRAFT
from tests.model.loading.gguf_mutations import GGUF_BASES, GGUF_HEADER_KINDS, write_gguf_bases
from tests.model.loading.gguf_tensor_mutations import GGUF_SHARD_KINDS, GGUF_TENSOR_KINDS
from tests.model.loading.safetensors_mutations import SAFETENSORS_KINDS
from tests.model.loading.tensor_fault import Fault, TensorFault
from tests.model.quantized_files import QUANTIZERS
from tests.model.quantized_models import write_quantized
from tests.model.tiny_encoder import write_encoder
from tests.model.tiny_models import tiny_weights, write_model
from tests.model.weight_files import write_shards

#: The intact models by the kind of their files.
_QUANTIZED = ("awq_g32", "gptq_ordered", "w4a16_asymmetric", "fp8_block")
BASES = {
    "directories": ("single", "shards", "mlc", "encoder", *_QUANTIZED),
    "safetensors": ("single", "shards", "encoder", *_QUANTIZED),
    "gguf": GGUF_BASES,
    "gguf headers": GGUF_BASES,  # Which are read, without an engine.
}

_LONG_NUMBER = "9" * 100_000
_DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 10**9, 10**30, -(10**30), 2**31, 2**63, 10**400),
    *(0.5, -0.5, 1e-320, 1e308, float("inf"), float("nan")),
    *("", "x", "a\0b", "../x", "x" * 5000, "\ud800", "{% for x in y %}", "ä中🙂"),
    *([], {}, [[]], [None], [1, 2, 3], ["x"] * 1000, {"x": 1}, {"type": "x"}),
)
_NORMALIZERS: tuple[object, ...] = (
    {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"},
    {"type": "Replace", "pattern": {"String": ""}, "content": "b"},
    {"type": "Replace", "pattern": {"Regex": "("}, "content": "b"},
    {"type": "Sequence", "normalizers": [{"type": "NFKC"}] * 500},
    {
        "type": "Sequence",
        "normalizers": [{"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 99}] * 9,
    },
)


@dataclass(frozen=True)
class Mutation:
    """A change of one file; the model must answer as before if the change is harmless."""

    file: str
    kind: str
    is_harmless: bool = False
    is_fatal: bool = False  #: Whether the model must not open.
    tensors: tuple[str, ...] = ()  #: At fault; an error names one of them.

    def __str__(self) -> str:
        return f"{self.file}: {self.kind}"


def write_bases(root: Path) -> None:
    """Write an intact directory for each of `BASES`."""
    write_gguf_bases(root)
    write_model(root / "single", "llama")
    (root / "single" / "generation_config.json").write_text(
        json.dumps({"eos_token_id": [257, 258], "temperature": 0.7, "top_k": 20, "top_p": 0.9})
    )
    sharded = write_model(root / "shards", "qwen2")
    (sharded / "model.safetensors").unlink()
    tensors = [{name: ("f32", value)} for name, value in tiny_weights("qwen2").items()]
    half = len(tensors) // 2
    write_shards(sharded, [_merged(tensors[:half]), _merged(tensors[half:])])
    (sharded / "chat_template.jinja").write_text("{{ messages[0].content }}")
    shutil.copytree(BUNDLED_DRAFT, root / "mlc")
    write_encoder(root / "encoder")
    for name in _QUANTIZED:
        write_quantized(root / name, QUANTIZERS[name])


def mutate(directory: Path, seed: int, files_of: str) -> Mutation:
    """Change one file of a model directory; of weights only, if `files_of` is their format."""
    rng = random.Random(seed)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    if files_of == "safetensors":
        files = [path for path in files if path.suffix == ".safetensors"]
    path = rng.choice(files)
    kinds = _kinds_of(path, headers_only=files_of == "gguf headers")
    kind = rng.choice(kinds)
    detail = kind(path, rng)
    file, name = str(path.relative_to(directory)), f"{kind.__name__.lstrip('_')}{detail or ''}"
    if isinstance(detail, TensorFault):
        return Mutation(file, name, is_fatal=detail.is_fatal, tensors=detail.tensors)

    return Mutation(file, name, is_harmless=kind in _HARMLESS)


def _kinds_of(path: Path, *, headers_only: bool) -> list[Fault]:
    """Return faults of a file; those of its format are more probable than those of any file."""
    own = _KINDS_BY_SUFFIX.get(path.suffix, _BINARY_KINDS)
    if path.suffix == ".gguf":
        if headers_only:
            own = GGUF_HEADER_KINDS
        if "-of-" in path.name:
            own = (*own, *GGUF_SHARD_KINDS)
    if path.name == "tokenizer.json":
        own = (*own, _replace_normalizer)
    return [*_KINDS, *own * 2]


def _merged(tensors: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for tensor in tensors for name, value in tensor.items()}


# ---- Any file ----


def _remove(path: Path, rng: random.Random) -> None:
    path.unlink()


def _replace_by_a_special_file(path: Path, rng: random.Random) -> str:
    make = rng.choice((_fifo, _device, _directory, _loop, _dangling, _socket))
    path.unlink()
    make(path)
    return f" {make.__name__}"


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _directory(path: Path) -> None:
    path.mkdir()


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere" * 20)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # The paths of sockets are short.
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def _truncate(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def _append(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.choice((1, 100, 10_000))))


def _extend(path: Path, rng: random.Random) -> str:
    """Append zeros that take no space on the disk."""
    size = path.stat().st_size + rng.choice((1, 4096, 1 << 28))
    os.truncate(path, size)
    return f" to {size}"


def _flip_bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 3, 30))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(content)


def _overwrite(path: Path, rng: random.Random) -> None:
    contents = (b"", b"{}", b"[]", b"null", b"\xff\xfe", b"\0" * 100, rng.randbytes(1000))
    path.write_bytes(rng.choice(contents))


# ---- JSON ----


def _change_value(path: Path, rng: random.Random) -> str:
    root = _load(path)
    container, key = rng.choice(list(_locations(root)))
    value = rng.choice(_VALUES)
    container[key] = value
    path.write_text(json.dumps(root))
    return f" {key!r} to {repr(value)[:40]}"


def _delete_value(path: Path, rng: random.Random) -> str:
    root = _load(path)
    container, key = rng.choice(list(_locations(root)))
    del container[key]
    path.write_text(json.dumps(root))
    return f" {key!r}"


def _insert_text(path: Path, rng: random.Random) -> str:
    text = rng.choice((_LONG_NUMBER, _DEEP, "[" * 100_000, '"\\ud800"', '"a\\u0000b"', "NaN", "-"))
    root = _load(path)
    container, key = rng.choice(list(_locations(root)))
    container[key] = "INSERTED"
    path.write_text(json.dumps(root).replace('"INSERTED"', text))
    return f" {text[:9]} at {key!r}"


def _reformat(path: Path, rng: random.Random) -> None:
    path.write_text(json.dumps(_load(path), indent=rng.choice((None, 1, 4))))


def _add_a_field(path: Path, rng: random.Random) -> None:
    root = _load(path)
    if isinstance(root, dict) and path.name in ("config.json", "tokenizer_config.json"):
        root["x_unknown"] = rng.choice(("x", 5, [1], {"a": {}}))
    path.write_text(json.dumps(root))


def _replace_normalizer(path: Path, rng: random.Random) -> str:
    index = rng.randrange(len(_NORMALIZERS))
    path.write_text(json.dumps(_load(path) | {"normalizer": _NORMALIZERS[index]}))
    return f" {index}"


def _load(path: Path) -> Any:  # noqa: ANN401 - JSON.
    return json.loads(path.read_text())


def _locations(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - JSON.
    """Yield each container of a JSON value with each key; of long lists, the first items."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, inner in pairs[:40]:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _locations(inner)


# ---- Weights ----


def _write_nan(path: Path, rng: random.Random) -> None:
    content = np.fromfile(path, np.uint8)
    content[len(content) // 2 :] = 0xFF
    content.tofile(path)


_KINDS: tuple[Fault, ...] = (
    *(_remove, _replace_by_a_special_file, _replace_by_a_special_file),
    *(_truncate, _append, _extend, _flip_bytes, _overwrite),
)
_JSON_KINDS: tuple[Fault, ...] = (
    *(_change_value, _change_value, _change_value, _change_value, _delete_value),
    *(_insert_text, _insert_text, _reformat, _add_a_field),
)
_BINARY_KINDS: tuple[Fault, ...] = (_flip_bytes, _write_nan)
_KINDS_BY_SUFFIX = {
    ".json": _JSON_KINDS,
    ".gguf": (*GGUF_HEADER_KINDS, *GGUF_TENSOR_KINDS),
    ".safetensors": SAFETENSORS_KINDS,
}
_HARMLESS: tuple[Fault, ...] = (_reformat, _add_a_field)
