"""Log-probabilities of token ids as OpenAI's, with the tokens' text."""

from __future__ import annotations

__all__ = (
    "FirstChoiceBuffer",
    "LogprobsWriter",
    "PromptWriter",
    "prompt_writer",
)

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, final

from aiomlc.api.protocol.request import GenerationRequest
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.stream import Delta
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

#: From the scored tokens of a prompt to its field `prompt_logprobs`.
PromptWriter = Callable[[Iterable[TokenLogprob]], list[Any]]


def prompt_writer(request: GenerationRequest, tokenizer: Tokenizer) -> PromptWriter | None:
    """What writes the field; None where it is not asked for."""
    num_top = request.prompt_logprobs
    if num_top is None:
        return None

    return partial(LogprobsWriter(tokenizer).write_prompt, num_top=num_top)


@final
class LogprobsWriter:
    """Writes the `logprobs` of a choice, as fields for a wire model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def write(self, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
        """One entry for each token, in order."""
        return {"content": [self._entry(token) for token in tokens]}

    def write_prompt(self, tokens: Iterable[TokenLogprob], num_top: int) -> list[Any]:
        """One entry for each token of a prompt, None for the first, which follows nothing."""
        return [None, *(self._entry(token._replace(top=token.top[:num_top])) for token in tokens)]

    def write_json(self, tokens: Iterable[TokenLogprob]) -> list[str]:
        """The same entries as JSON texts, as upstream's engine of steps tells them."""
        return [json.dumps(self._entry(token)) for token in tokens]

    def _entry(self, token: TokenLogprob) -> dict[str, Any]:
        top = [self._described(token_id, logprob) for token_id, logprob in token.top]
        return {**self._described(token.token_id, token.logprob), "top_logprobs": top}

    def _described(self, token_id: int, logprob: float) -> dict[str, Any]:
        text, added = self._tokenizer.describe(token_id)
        return {
            "token": text,
            "logprob": logprob,
            "bytes": None if added is None else list(added),
        }


@final
class FirstChoiceBuffer:
    """Holds the deltas of a request's choices back until the first choice speaks.

    That one alone has the prompt's log-probabilities, and computes the prompt for them, while the
    others may have found it in the KV cache.
    """

    def __init__(self) -> None:
        self.prompt: tuple[TokenLogprob, ...] | None = None  #: Set when the first delta passes.
        self._held: list[Delta] = []

    def put(self, delta: Delta) -> list[Delta]:
        """The deltas that may be told now, in order."""
        if self.prompt is not None:
            return [delta]

        if delta.choice != 0:
            self._held.append(delta)
            return []

        self.prompt = delta.prompt_logprobs
        passed, self._held = [delta, *self._held], []
        return passed
