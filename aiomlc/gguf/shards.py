"""The files of a model in GGUF: a single one, or shards such as `NAME-00001-of-00003.gguf`."""

from __future__ import annotations

__all__ = ("find_gguf", "is_gguf", "model_name", "shard_paths")

import re
from itertools import islice
from pathlib import Path

from aiomlc.errors import ModelLoadError
from aiomlc.validation.model_files import load_errors

_SUFFIX = ".gguf"
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_MAX_SHARDS = 1000
_MAX_ENTRIES = 10_000
# Parts of multimodal models beside the decoder, and statistics for quantizing.
_NO_MODEL = ("mmproj", "imatrix")
_OTHER_FORMATS = ("mlc-chat-config.json", "model.safetensors", "model.safetensors.index.json")


def is_gguf(path: Path) -> bool:
    """Return whether a path of a model is that of a GGUF file rather than of a directory."""
    return path.suffix.lower() == _SUFFIX and not path.is_dir()


def model_name(path: Path) -> str:
    """Return the name of a model without the number of its first shard."""
    shard = _SHARD.fullmatch(path.name)
    return shard["stem"] if shard else path.stem


def shard_paths(path: Path) -> tuple[Path, ...]:
    """Return the files of the model that `path` belongs to, by the name of `path`.

    Raises:
        ModelLoadError: If the numbers in the name are out of range.
    """
    shard = _SHARD.fullmatch(path.name)
    if shard is None:
        return (path,)

    count = int(shard["count"])
    if not 1 <= int(shard["number"]) <= count <= _MAX_SHARDS:
        problem = f"its name must number it from 1 to its number of shards (up to {_MAX_SHARDS})"
        raise ModelLoadError(f"{path}: {problem}", path=path)

    suffix = path.name[-len(_SUFFIX) :]
    names = (f"{shard['stem']}-{number:05}-of-{count:05}{suffix}" for number in range(1, count + 1))
    return tuple(path.with_name(name) for name in names)


def find_gguf(path: Path) -> Path | None:
    """Return the first file of a model in GGUF; None if `path` has another format.

    Args:
        path: A GGUF file, any shard of one, or a directory that contains one model in GGUF and
            none in another format.

    Raises:
        ModelLoadError: If a directory contains several models in GGUF.
    """
    if is_gguf(path):
        return shard_paths(path)[0] if path.exists() else None

    with load_errors(path):
        if not path.is_dir() or any((path / name).exists() for name in _OTHER_FORMATS):
            return None

        entries = sorted(islice(path.iterdir(), _MAX_ENTRIES))

    files = [entry for entry in entries if is_gguf(entry) and not _is_part(entry)]
    models = sorted({shard_paths(file)[0] for file in files})
    if len(models) > 1:
        names = ", ".join(model.name for model in models[:10])
        raise ModelLoadError(
            f"{path}: contains {len(models)} models in GGUF: pass the path of one of them: {names}",
            path=path,
        )

    return models[0] if models else None


def _is_part(path: Path) -> bool:
    return path.name.lower().startswith(_NO_MODEL)
