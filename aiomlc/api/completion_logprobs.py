"""Log-probabilities as plain completions tell them: parallel lists, with places in the text."""

from __future__ import annotations

__all__ = ("CompletionLogprobsWriter",)

import codecs
from collections.abc import Iterable
from typing import Any, final

from aiomlc.runtime.core_protocol import TokenLogprob
from aiomlc.runtime.tokenizer import Tokenizer


@final
class CompletionLogprobsWriter:
    """Writes the `logprobs` of one choice, piece by piece.

    Args:
        tokenizer: Spells the tokens.
        offset: Characters before the first token.
    """

    def __init__(self, tokenizer: Tokenizer, offset: int = 0) -> None:
        self._tokenizer = tokenizer
        self._offset = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(self, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
        """The next tokens. An offset counts the whole characters before a token."""
        lists: dict[str, list[Any]] = {
            "text_offset": [],
            "token_logprobs": [],
            "tokens": [],
            "top_logprobs": [],
        }
        for token in tokens:
            text, added = self._tokenizer.describe(token.token_id)
            lists["text_offset"].append(self._offset)
            lists["token_logprobs"].append(token.logprob)
            lists["tokens"].append(text)
            lists["top_logprobs"].append(self._top(token, text))
            self._offset += len(self._decoder.decode(added or b""))

        return lists

    def _top(self, token: TokenLogprob, text: str) -> dict[str, float]:
        """The likely tokens and the chosen one; of two that are spelt alike the likelier."""
        top = {text: token.logprob}
        for token_id, logprob in token.top:
            other = self._tokenizer.describe(token_id)[0]
            top[other] = max(logprob, top.get(other, logprob))

        return top
