"""Token ids to text, as they come, for programs that keep the ids themselves."""

from __future__ import annotations

__all__ = ("TextStreamer",)

import codecs
from collections.abc import Sequence
from typing import final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.arguments import check_token_ids, check_type
from aiomlc.validation.json_values import short_repr


@final
class TextStreamer:
    """The text of one growing sequence. Half a character waits for its other half.

    Raises:
        BadRequestError: the argument is no tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        check_type("tokenizer", tokenizer, Tokenizer, "a Tokenizer")
        self._pieces = tokenizer.pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_finished = False

    def put(self, token_ids: Sequence[int]) -> str:
        """The text that these tokens complete.

        Raises:
            BadRequestError: the text was finished, or an id is not one of the vocabulary.
        """
        if self._is_finished:
            raise BadRequestError("`put` is not expected to be invoked after finish.")

        check_token_ids("token_ids", token_ids)
        return self._decoder.decode(b"".join(map(self._piece, token_ids)))

    def finish(self) -> str:
        """What is left; a character that never got its other half is U+FFFD."""
        self._is_finished = True
        return self._decoder.decode(b"", final=True)

    def _piece(self, token_id: int) -> bytes:
        if not 0 <= token_id < len(self._pieces):
            raise BadRequestError(
                f"token_ids: token id {short_repr(token_id)} is not one of {len(self._pieces)}",
                param="token_ids",
            )

        return self._pieces[token_id]
