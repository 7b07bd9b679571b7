"""The tokenizers of the `tokenizers` package: reading their file, parsing it, and their failures.

The package is written in Rust. Some contents of a `tokenizer.json` make it panic, which Python sees
as an exception that is not an `Exception`; others abort the process.
"""

from __future__ import annotations

__all__ = ("encode_text", "parse_backend", "read_tokenizer_file", "tokenizer_failures")

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tokenizers

from aiomlc.errors import ModelLoadError, ModelNotFoundError, RequestFailedError
from aiomlc.runtime.tokenization.trial import try_tokenizer
from aiomlc.validation.model_files import MAX_TOKENIZER_BYTES, is_panic, load_errors, read_bytes

# `encode` of the package keeps the GIL, for about 1 ms per 1,000 characters; batches do not.
_MAX_CHARACTERS_WITH_GIL = 20_000


def encode_text(
    backend: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool = False
) -> list[int]:
    """Return the token ids of a text; a long one is encoded without the GIL."""
    if isinstance(text, str) and len(text) > _MAX_CHARACTERS_WITH_GIL:
        return backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids

    return backend.encode(text, add_special_tokens=add_special_tokens).ids


def read_tokenizer_file(path: Path) -> str:
    """Return the contents of a `tokenizer.json` that may be parsed in this process.

    Raises:
        ModelNotFoundError: If the file does not exist.
        ModelLoadError: If it cannot be read, or was refused after a trial.
    """
    try:
        content = read_bytes(path, MAX_TOKENIZER_BYTES)
    except ModelNotFoundError:
        raise ModelNotFoundError(f"cannot find the tokenizer {path}", path=path) from None

    with load_errors(path):
        text = content.decode()
    try_tokenizer(path, content)
    return text


def parse_backend(text: str) -> tokenizers.Tokenizer:
    """Return the tokenizer of the contents of a `tokenizer.json`.

    Raises:
        ModelLoadError: If the text is not a tokenizer.
    """
    try:
        return tokenizers.Tokenizer.from_str(text)
    except BaseException as error:
        if not (isinstance(error, Exception) or is_panic(error)):
            raise

        raise ModelLoadError(f"invalid tokenizer.json: {error}") from None


@contextmanager
def tokenizer_failures() -> Iterator[None]:
    """Map failures of the tokenizer; a wrong type of an argument passes.

    Raises:
        RequestFailedError: If the tokenizer fails.
    """
    try:
        yield
    except (TypeError, OverflowError, MemoryError):
        raise
    except BaseException as error:
        if not (isinstance(error, Exception) or is_panic(error)):
            raise

        raise RequestFailedError(f"the model's tokenizer failed: {error}") from error
