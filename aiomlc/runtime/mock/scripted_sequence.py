"""A sequence of the fake core, which generates a scripted reply."""

from __future__ import annotations

__all__ = ("VOCAB_SIZE", "ScriptedSequence")

import math
from collections.abc import Sequence
from typing import final

from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.logits_processors import LogitsProcessors
from aiomlc.sampling_params import SequenceOptions

VOCAB_SIZE = 256  #: Token i is byte i.


@final
class ScriptedSequence:
    """A live sequence that generates its reply, one character for each token.

    Args:
        reply: The text that the sequence generates unless it is ended before.
    """

    def __init__(self, prompt_ids: Sequence[int], options: SequenceOptions, reply: str) -> None:
        self.prompt_ids: tuple[int, ...] = tuple(prompt_ids)
        self.options: SequenceOptions = options
        self.num_generated: int = 0
        self._reply = reply

    def next_token(self) -> tuple[str, str | None]:
        """Return the next character, and the finish reason if it is the last one."""
        if self.num_generated >= len(self._reply):
            return "", "stop"

        text = self._reply[self.num_generated]
        self.num_generated += 1
        limit = self.options.max_tokens
        return text, "length" if limit is not None and self.num_generated >= limit else None

    def run_logits_processors(self) -> bool:
        """Call the logits processors of the request with zeros; return False if one raised."""
        processors = self.options.logits_processors
        if not isinstance(processors, LogitsProcessors):
            return True

        import numpy as np

        generated = map(ord, self._reply[: self.num_generated])
        return processors.run((*self.prompt_ids, *generated), np.zeros(VOCAB_SIZE, np.float32))

    def logprobs(self, text: str) -> tuple[TokenLogprob, ...]:
        """Return invented log-probabilities of generated text, if the request asks for them."""
        num_top = self.options.top_logprobs
        return () if num_top is None else tuple(_logprob(ord(each), num_top) for each in text)

    def prompt_logprobs(self) -> tuple[TokenLogprob, ...]:
        """Return invented log-probabilities of the prompt; empty after the first token."""
        num_top = self.options.prompt_logprobs
        if num_top is None or self.num_generated > 0:
            return ()

        return tuple(_logprob(token_id, num_top) for token_id in self.prompt_ids[1:])


def _logprob(token_id: int, num_top: int) -> TokenLogprob:
    half = math.log(0.5)
    top = tuple(((token_id + index) % VOCAB_SIZE, half * (index + 1)) for index in range(num_top))
    return TokenLogprob(token_id, half, top)
