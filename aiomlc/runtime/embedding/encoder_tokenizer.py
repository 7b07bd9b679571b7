"""An encoder's `tokenizer.json`: text to ids with the model's special tokens around it."""

from __future__ import annotations

__all__ = ("EncoderTokenizer",)

import functools
from pathlib import Path
from typing import Self, final

import tokenizers

from aiomlc.errors import ModelLoadError


@final
class EncoderTokenizer:
    """Encode texts for an encoder. Thread-safe.

    Args:
        text: What a `tokenizer.json` holds.
        max_tokens: Of one text, special tokens included, when it is cut.

    Raises:
        ModelLoadError: the text is not a tokenizer.
    """

    def __init__(self, text: str, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._text = text
        self._backend = self._parse()
        self._backend.no_truncation()

    @classmethod
    def from_file(cls, path: Path, max_tokens: int) -> Self:
        """Read a `tokenizer.json`.

        Raises:
            ModelLoadError: the file is missing or not a tokenizer.
        """
        try:
            return cls(path.read_text(encoding="utf-8"), max_tokens)
        except (OSError, UnicodeDecodeError) as error:
            raise ModelLoadError(f"the tokenizer cannot be read: {error}", path=path) from error
        except ModelLoadError as error:
            raise ModelLoadError(f"{path}: {error}", path=path) from error

    @property
    def vocab_size(self) -> int:
        """One more than the highest token id."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str, *, truncate: bool = False) -> list[int]:
        """The ids of a text; cut to `max_tokens` on demand, its closing token kept."""
        backend = self._truncating if truncate else self._backend
        return backend.encode(text).ids

    @functools.cached_property
    def _truncating(self) -> tokenizers.Tokenizer:
        backend = self._parse()
        backend.enable_truncation(self.max_tokens)
        return backend

    def _parse(self) -> tokenizers.Tokenizer:
        try:
            backend = tokenizers.Tokenizer.from_str(self._text)
        except Exception as error:  # The extension raises nothing narrower.
            raise ModelLoadError(f"not a tokenizer: {error}") from error

        backend.no_padding()
        return backend
