"""Log-probabilities in OpenAI's format."""

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

#: Converts the log-probabilities of a prompt to the field `prompt_logprobs`.
PromptWriter = Callable[[Iterable[TokenLogprob]], list[Any]]


def prompt_writer(request: GenerationRequest, tokenizer: Tokenizer) -> PromptWriter | None:
    """Return the writer of `prompt_logprobs`; None if the request does not ask for them."""
    num_top = request.prompt_logprobs
    if num_top is None:
        return None

    return partial(LogprobsWriter(tokenizer).write_prompt, num_top=num_top)


@final
class LogprobsWriter:
    """A converter of log-probabilities to the entries of OpenAI's `logprobs`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def write(self, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
        """Return the field `logprobs` of a choice, with one entry per token."""
        return {"content": [self._entry(token) for token in tokens]}

    def write_prompt(self, tokens: Iterable[TokenLogprob], num_top: int) -> list[Any]:
        """Return one entry per token of a prompt; None for the first, which follows no token."""
        return [None, *(self._entry(token._replace(top=token.top[:num_top])) for token in tokens)]

    def write_json(self, tokens: Iterable[TokenLogprob]) -> list[str]:
        """Return one entry per token as JSON, as MLC LLM's `SyncMLCEngine` returns them."""
        return [json.dumps(self._entry(token)) for token in tokens]

    def _entry(self, token: TokenLogprob) -> dict[str, Any]:
        top = [self._describe(token_id, logprob) for token_id, logprob in token.top]
        return {**self._describe(token.token_id, token.logprob), "top_logprobs": top}

    def _describe(self, token_id: int, logprob: float) -> dict[str, Any]:
        text, token_bytes = self._tokenizer.describe(token_id)
        return {
            "token": text,
            "logprob": logprob,
            "bytes": None if token_bytes is None else list(token_bytes),
        }


@final
class FirstChoiceBuffer:
    """A buffer for other choices until choice 0 has delivered the prompt's log-probabilities.

    Only choice 0 has them. It must prefill the prompt to compute them, while the other choices may
    find the prompt in the prefix cache and so be faster.
    """

    def __init__(self) -> None:
        self.prompt: tuple[TokenLogprob, ...] | None = None  #: The first delta of choice 0 sets it.
        self._buffered: list[Delta] = []

    def put(self, delta: Delta) -> list[Delta]:
        """Add a delta, and return those that can be delivered, in order."""
        if self.prompt is not None:
            return [delta]

        if delta.choice != 0:
            self._buffered.append(delta)
            return []

        self.prompt = delta.prompt_logprobs
        buffered, self._buffered = self._buffered, []
        return [delta, *buffered]
