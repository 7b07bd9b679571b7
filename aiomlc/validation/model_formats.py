"""Model formats that are not supported: what to do with a path that holds one."""

from __future__ import annotations

__all__ = ("describe_missing", "describe_names", "describe_unsupported")

from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Final

from aiomlc.validation.suggestions import suggest, suggest_repository

_ADAPTER = "LoRA adapters are not supported: pass the model into which the adapter is merged"
_PICKLED = (
    "PyTorch's pickled weights are not supported: convert them with "
    "save_pretrained(directory, safe_serialization=True) of transformers"
)
_NO_CONFIG = (
    "MLC's weights need mlc-chat-config.json, which is missing: `aiomlc gen-config` writes it"
)
_UNSUPPORTED: Final = {
    "adapter_config.json": _ADAPTER,
    "pytorch_model*.bin": _PICKLED,
    "*.pth": _PICKLED,
    "*.pt": _PICKLED,
    "*.pkl": _PICKLED,
    "*.ckpt": _PICKLED,
    "tensor-cache.json": _NO_CONFIG,
    "ndarray-cache.json": _NO_CONFIG,
    "params_shard_*.bin": "MLC's shards need their index, tensor-cache.json, which is missing",
    "*.bin": _PICKLED,
    "*.onnx": "ONNX is not supported: pass the Hugging Face model that it was made from",
}
_BUNDLED = "pebble"
_NAMES = (
    f"pass the directory of a model, a GGUF file, HF://user/repository, or {_BUNDLED} for the "
    "bundled model"
)
_MAX_ENTRIES = 10_000


def describe_unsupported(directory: Path) -> str | None:
    """Return what a directory contains that is not supported; None if nothing is known of it."""
    problem = describe_names(list(_names(directory)))
    return f"it contains {problem}" if problem else None


def describe_names(names: Collection[str]) -> str | None:
    """Return the first file that is not supported, and why; None if nothing is known of them."""
    for pattern, problem in _UNSUPPORTED.items():
        for name in names:
            if fnmatch(name, pattern):
                return f"{name}, and {problem}"

    return None


def describe_missing(path: Path) -> str:
    """Return why `path`, which is neither a directory nor a GGUF file, is not a model."""
    if path.exists():
        return "it is a file, but not GGUF: pass the directory that contains it"

    if repository := suggest_repository(str(path)):
        return f"no such file or directory; {repository}"

    models = [entry.name for entry in _entries(path.parent) if _may_be_model(entry)]
    hint = suggest(path.name, [*models, _BUNDLED], synonyms={}, cutoff=0.8)
    return "no such file or directory" + (hint or f"; {_NAMES}")


def _may_be_model(entry: Path) -> bool:
    try:
        return entry.suffix.lower() == ".gguf" or entry.is_dir()
    except OSError:
        return False  # The target of a link may be in a directory that is closed to this user.


def _names(directory: Path) -> Iterator[str]:
    return (entry.name for entry in _entries(directory))


def _entries(directory: Path) -> Iterator[Path]:
    try:
        yield from islice(directory.iterdir(), _MAX_ENTRIES)
    except OSError:
        return  # Only a hint is lost.
