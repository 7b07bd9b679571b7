"""The log-probabilities of text completions: parallel lists with text offsets."""

from __future__ import annotations

__all__ = ("CompletionLogprobsWriter", "Echo")

import codecs
from collections.abc import Iterable
from typing import Any, NamedTuple, final

from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

_LIST_NAMES = ("text_offset", "token_logprobs", "tokens", "top_logprobs")


class Echo(NamedTuple):
    """A prompt that is echoed at the start of its completion."""

    text: str
    first_id: int  #: The first token of the prompt.


@final
class CompletionLogprobsWriter:
    """An incremental writer of the `logprobs` of one choice."""

    def __init__(self, tokenizer: Tokenizer, num_top: int = 20) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._offset = 0  #: Characters before the next token.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._echoed = ""  # While a prompt is written: its text, with that of special tokens.

    def write(self, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
        """Return the lists of the next tokens.

        The offset of a token is the number of complete characters before it.
        """
        lists: dict[str, list[Any]] = {name: [] for name in _LIST_NAMES}
        for token in tokens:
            text = self._append_token(lists, token.token_id)
            lists["token_logprobs"].append(token.logprob)
            lists["top_logprobs"].append(self._top_logprobs(token, text))

        return lists

    def write_prompt(self, echo: Echo, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
        """Return the lists of an echoed prompt, whose first token has no log-probability.

        Args:
            tokens: The log-probabilities of the prompt's tokens from the second on.
        """
        lists: dict[str, list[Any]] = {name: [] for name in _LIST_NAMES}
        self._echoed = echo.text
        self._append_token(lists, echo.first_id)
        lists["token_logprobs"].append(None)
        lists["top_logprobs"].append(None)
        scored = self.write(tokens)
        # The prompt's tokens may decode to a text that differs from the prompt at its ends.
        self._offset = len(echo.text)
        self._echoed = ""
        self._decoder.reset()
        return {name: lists[name] + scored[name] for name in _LIST_NAMES}

    def _append_token(self, lists: dict[str, list[Any]], token_id: int) -> str:
        text, added = self._tokenizer.describe(token_id)
        lists["text_offset"].append(self._offset)
        lists["tokens"].append(text)
        if added is None and self._echoed.startswith(text, self._offset):
            self._offset += len(text)
        self._offset += len(self._decoder.decode(added or b""))
        return text

    def _top_logprobs(self, token: TokenLogprob, text: str) -> dict[str, float]:
        """Return the log-probabilities of the most likely tokens and of the sampled one, by text.

        If several tokens have the same text, the highest log-probability is returned.
        """
        top = {text: token.logprob}
        for token_id, logprob in token.top[: self._num_top]:
            top_text = self._tokenizer.describe(token_id)[0]
            top[top_text] = max(logprob, top.get(top_text, logprob))

        return top
