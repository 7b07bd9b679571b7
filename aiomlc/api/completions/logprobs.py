"""Log-probabilities as plain completions tell them: parallel lists, with places in the text."""

from __future__ import annotations

__all__ = ("CompletionLogprobsWriter", "Echo")

import codecs
from collections.abc import Iterable
from typing import Any, NamedTuple, final

from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

_LISTS = ("text_offset", "token_logprobs", "tokens", "top_logprobs")


class Echo(NamedTuple):
    """A prompt that its completion begins with."""

    text: str
    first_id: int


@final
class CompletionLogprobsWriter:
    """Writes the `logprobs` of one choice, piece by piece.

    Args:
        tokenizer: Spells the tokens.
        offset: Characters before the first token.
        num_top: Alternatives to tell with each token, at most.
    """

    def __init__(self, tokenizer: Tokenizer, offset: int = 0, num_top: int = 20) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._offset = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(self, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
        """The next tokens. An offset counts the whole characters before a token."""
        lists: dict[str, list[Any]] = {name: [] for name in _LISTS}
        for token in tokens:
            text = self._put(lists, token.token_id)
            lists["token_logprobs"].append(token.logprob)
            lists["top_logprobs"].append(self._top(token, text))

        return lists

    def write_prompt(self, echo: Echo, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
        """The tokens of an echoed prompt, from its second on; nothing is known of the first."""
        lists: dict[str, list[Any]] = {name: [] for name in _LISTS}
        self._put(lists, echo.first_id)
        lists["token_logprobs"].append(None)
        lists["top_logprobs"].append(None)
        told = self.write(tokens)
        # A prompt's text is given, and what its tokens decode to may differ at its ends.
        self._offset = len(echo.text)
        self._decoder.reset()
        return {name: lists[name] + told[name] for name in _LISTS}

    def _put(self, lists: dict[str, list[Any]], token_id: int) -> str:
        text, added = self._tokenizer.describe(token_id)
        lists["text_offset"].append(self._offset)
        lists["tokens"].append(text)
        self._offset += len(self._decoder.decode(added or b""))
        return text

    def _top(self, token: TokenLogprob, text: str) -> dict[str, float]:
        """The likely tokens and the chosen one; of two that are spelt alike the likelier."""
        top = {text: token.logprob}
        for token_id, logprob in token.top[: self._num_top]:
            other = self._tokenizer.describe(token_id)[0]
            top[other] = max(logprob, top.get(other, logprob))

        return top
