"""The tokenizer of an encoder, which adds the model's special tokens to each text."""

from __future__ import annotations

__all__ = ("EncoderTokenizer",)

import functools
from pathlib import Path
from typing import Self, final

import tokenizers

from aiomlc.runtime.tokenization.backend import (
    parse_backend,
    read_tokenizer_file,
    tokenizer_failures,
)
from aiomlc.validation.model_files import load_errors


@final
class EncoderTokenizer:
    """The tokenizer of an encoder. Thread-safe.

    Args:
        config: The contents of a `tokenizer.json` (Hugging Face).
        max_tokens: The length of truncated inputs, special tokens included.

    Raises:
        ModelLoadError: If `config` is not a valid tokenizer.
    """

    def __init__(self, config: str, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._config = config
        self._backend = self._parse()
        self._backend.no_truncation()

    @classmethod
    def from_file(cls, path: Path, max_tokens: int) -> Self:
        """Read a `tokenizer.json`.

        Raises:
            ModelLoadError: If the file is missing or not a valid tokenizer.
        """
        text = read_tokenizer_file(path)
        with load_errors(path):
            return cls(text, max_tokens)

    @property
    def vocab_size(self) -> int:
        """The highest token id plus 1."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str, *, truncate: bool = False) -> list[int]:
        """Return the token ids of text, with the model's special tokens around it.

        If `truncate` is set, the text is truncated so that there are at most `max_tokens` ids.

        Raises:
            RequestFailedError: If the tokenizer fails on this text.
        """
        backend = self._truncating_backend if truncate else self._backend
        with tokenizer_failures():
            return backend.encode(text).ids

    @functools.cached_property
    def _truncating_backend(self) -> tokenizers.Tokenizer:
        backend = self._parse()
        backend.enable_truncation(self.max_tokens)
        return backend

    def _parse(self) -> tokenizers.Tokenizer:
        backend = parse_backend(self._config)
        backend.no_padding()
        return backend
