"""Incremental detokenization for programs that handle token ids themselves."""

from __future__ import annotations

__all__ = ("TextStreamer",)

import codecs
from collections.abc import Sequence
from typing import final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.arguments import check_flag, check_token_ids, check_type
from aiomlc.validation.json_values import short_repr


@final
class TextStreamer:
    """An incremental detokenizer of one sequence, which holds back incomplete characters.

    Args:
        tokenizer: The tokenizer of an engine.
        keep_leading_space: Whether to keep a space before the first token, which
            `Tokenizer.decode` of a SentencePiece model drops: for text that continues a prompt.

    Raises:
        BadRequestError: If `tokenizer` is not a Tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, *, keep_leading_space: bool = False) -> None:
        check_type("tokenizer", tokenizer, Tokenizer, "a Tokenizer")
        check_flag("keep_leading_space", keep_leading_space)
        self._strips_space = tokenizer.strips_leading_space and not keep_leading_space
        self._vocab_bytes = tokenizer.vocab_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_finished = False

    def put(self, delta_tokens: Sequence[int]) -> str:
        """Append tokens and return the text that they complete.

        Raises:
            BadRequestError: If `finish` was called before, or a token id is out of range.
        """
        if self._is_finished:
            raise BadRequestError("`put` is not expected to be invoked after finish.")

        check_token_ids("delta_tokens", delta_tokens)
        text = self._decoder.decode(b"".join(map(self._token_bytes, delta_tokens)))
        if text and self._strips_space:
            self._strips_space = False
            return text.removeprefix(" ")

        return text

    def finish(self) -> str:
        """Return the remaining text; an incomplete character is replaced by U+FFFD."""
        self._is_finished = True
        return self._decoder.decode(b"", final=True)

    def _token_bytes(self, token_id: int) -> bytes:
        if not 0 <= token_id < len(self._vocab_bytes):
            raise BadRequestError(
                f"delta_tokens: token id {short_repr(token_id)} is not in "
                f"[0, {len(self._vocab_bytes)})",
                param="delta_tokens",
            )

        return self._vocab_bytes[token_id]
