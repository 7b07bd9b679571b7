"""The tokenizer of a GGUF file and its special tokens, built once and then read from the cache.

Building a tokenizer takes up to seconds. The results are kept by the digest of what they are made
from, so they are never out of date.
"""

from __future__ import annotations

__all__ = ("SpecialTokens", "read_special_tokens", "read_tokenizer_json")

import hashlib
import logging
import os
from dataclasses import asdict, dataclass
from typing import Any

from aiomlc.cache.files import read_sealed, regular_file, write_atomically, write_sealed
from aiomlc.cache.home import cache_homes
from aiomlc.gguf.model import GGUFModel
from aiomlc.gguf.special_tokens import SpecialTokens, special_tokens
from aiomlc.gguf.tokenizer import TOKENIZER_VERSION, tokenizer_json
from aiomlc.gguf.vocabulary import read_vocabulary

_DIRECTORY = "tokenizers"
_TOKENS = ".tokens.json"
_TOKENIZER = ".tokenizer.json"

_logger = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class _Built:
    """The tokenizer that was made from the metadata."""

    tokens: SpecialTokens
    tokenizer: bytes  #: The contents of a `tokenizer.json`.


def read_special_tokens(model: GGUFModel) -> SpecialTokens:
    """Return the special tokens.

    Raises:
        ModelLoadError: If the tokenizer is not supported, or a key is missing or invalid.
    """
    identity = _identity(model)
    if (record := _read_record(identity)) is not None:
        return SpecialTokens(**record["tokens"])

    return _build(model, identity).tokens


def read_tokenizer_json(model: GGUFModel) -> str:
    """Return the contents of the tokenizer's `tokenizer.json`.

    Raises:
        ModelLoadError: If the tokenizer is not supported, or a key is missing or invalid.
    """
    identity = _identity(model)
    if (record := _read_record(identity)) is not None:
        tokenizer = _read_tokenizer(identity)
        if hashlib.sha256(tokenizer).hexdigest() == record["sha256"]:
            return tokenizer.decode()

    return _build(model, identity).tokenizer.decode()


def _identity(model: GGUFModel) -> str:
    """Return a digest of everything that the tokenizer is made from."""
    digest = f"{TOKENIZER_VERSION} {model.architecture} {model.tokenizer_digest}"
    return hashlib.sha256(digest.encode()).hexdigest()


def _build(model: GGUFModel, identity: str) -> _Built:
    """Build the tokenizer and keep it, so that the next call only reads it."""
    vocabulary = read_vocabulary(model)
    built = _Built(special_tokens(model, vocabulary), tokenizer_json(model, vocabulary))
    record = {
        "tokens": asdict(built.tokens),
        "sha256": hashlib.sha256(built.tokenizer).hexdigest(),
    }
    directory = cache_homes()[-1] / _DIRECTORY
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / f"{identity}{_TOKENIZER}", built.tokenizer)
        write_sealed(directory / f"{identity}{_TOKENS}", record)
    except OSError as error:  # It is built again next time.
        _logger.debug("cannot write %s: %s", directory, error)
    return built


def _read_record(identity: str) -> dict[str, Any] | None:
    for home in cache_homes():
        try:
            record: dict[str, Any] = read_sealed(home / _DIRECTORY / f"{identity}{_TOKENS}")
        except (OSError, ValueError):
            continue  # Missing or damaged: it is built again.

        return record

    return None


def _read_tokenizer(identity: str) -> bytes:
    for home in cache_homes():
        try:
            with regular_file(home / _DIRECTORY / f"{identity}{_TOKENIZER}") as descriptor:
                size = os.fstat(descriptor).st_size
                return os.pread(descriptor, size, 0)
        except OSError:
            continue

    return b""
