"""What a sequence asks for: how it is sampled, and when it stops."""

from __future__ import annotations

__all__ = ("SamplingDefaults", "SequenceOptions")

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class SequenceOptions:
    """How one sequence is sampled and when it stops."""

    max_tokens: int | None = None  #: Completion tokens; None is up to the context window.
    temperature: float = 1.0  #: 0 is greedy.
    top_p: float = 1.0
    top_k: int = 0  #: 0 is off.
    min_p: float = 0.0
    presence_penalty: float = 0.0  #: -2 to 2.
    frequency_penalty: float = 0.0  #: -2 to 2.
    repetition_penalty: float = 1.0  #: Above 0; 1 is off.
    logit_bias: tuple[tuple[int, float], ...] = ()  #: Token ids, each once, and -100 to 100.
    min_tokens: int = 0  #: Only `max_tokens`, or a grammar's end, ends the sequence before.
    top_logprobs: int | None = None  #: Alternatives per token, to 20; None is no logprobs.
    prompt_logprobs: int | None = None  #: The same for the tokens of the prompt.
    seed: int | None = None
    stop: tuple[str, ...] = ()  #: Never part of the text.
    stop_token_ids: tuple[int, ...] = ()
    logits_processors: object = None  #: A `LogitsProcessors`, or None.
    grammar: object = None  #: What the text must be, as `GrammarCache` compiled it.
    priority: int = 0  #: The lower, the earlier; among equals the order of arrival decides.
    timeout: float | None = None  #: Seconds from the submission to the end.
    first_token_timeout: float | None = None  #: Seconds from the submission to the first token.
    inter_token_timeout: float | None = None  #: Seconds between two tokens, as they are computed.
    is_pinned: bool = False  #: Its tokens stay in the prefix cache when it has ended well.

    def of_choice(self, choice: int) -> Self:
        """The same for one of several choices: its seed is the request's plus its number.

        The prompt that they share is scored for the first.
        """
        if choice == 0 or (self.seed is None and self.prompt_logprobs is None):
            return self

        # In 64 bits with a sign.
        seed = self.seed
        own = None if seed is None else (seed + choice + (1 << 63)) % (1 << 64) - (1 << 63)
        return replace(self, seed=own, prompt_logprobs=None)


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """The model's own choice where a request makes none."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  #: 0 is off.
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
