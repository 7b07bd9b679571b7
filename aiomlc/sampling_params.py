"""The table of sampling parameters: name, type, range, default and meaning of each, in one place.

Requests, keyword arguments, `GenerationConfig`, the model's defaults, error messages and the
native options derive from it. To add a parameter: a field and a key here, a member and a table row
in `native/src/options/sequence_options.h`, its effect in `native/src/sampling/` (`sampler.cc` draws
the token; `logit_adjuster.cc` has the bias, the penalties and `min_tokens`), a line in
`docs/parameters.md`, and a test.
"""

from __future__ import annotations

__all__ = ("MODEL_DEFAULTS", "PARAMETERS", "SamplingKwargs", "SamplingParams", "SequenceOptions")

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Self, TypedDict, get_args, get_type_hints

from aiomlc.validation.parameter import Doc, Flag, Integer, Number

_MIN_SECONDS = 1e-3  # Of a time limit that has nearly passed.


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """The parameters of sampling, and the limits of a completion.

    None selects the default of the model's files, else the default in parentheses.
    """

    temperature: Annotated[
        float | None,
        Number(1.0, ge=0),
        Doc("Divides the logits before sampling (1); 0 means greedy decoding."),
    ] = None
    top_p: Annotated[
        float | None,
        Number(1.0, ge=0, le=1),
        Doc("Sample from the most likely tokens whose probabilities add up to this (1: from all)."),
    ] = None
    top_k: Annotated[
        int | None,
        Integer(0, ge=0, off=-1),
        Doc("Sample from this many of the most likely tokens (0 or -1: from all)."),
    ] = None
    min_p: Annotated[
        float | None,
        Number(0.0, ge=0, le=1),
        Doc("Sample from tokens at least this likely, relative to the likeliest (0: from all)."),
    ] = None
    presence_penalty: Annotated[
        float | None,
        Number(0.0, ge=-2, le=2),
        Doc("Subtracted from the logits of tokens that were generated before (0)."),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        Number(0.0, ge=-2, le=2),
        Doc("Subtracted from a token's logit for each time it was generated before (0)."),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        Number(1.0, gt=0),
        Doc(
            "Divides positive logits, and multiplies negative ones, of tokens generated before (1)."
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        Integer(ge=1),
        Doc("The maximum number of completion tokens (the rest of the context window)."),
    ] = None
    min_tokens: Annotated[
        int | None,
        Integer(0, ge=0),
        Doc("Completion tokens before which only `max_tokens` or a grammar can end the text (0)."),
    ] = None
    ignore_eos: Annotated[bool | None, Flag(), Doc("Ignore the model's stop tokens (False).")] = (
        None
    )
    seed: Annotated[int | None, Integer(), Doc("The same seed gives the same text (random).")] = (
        None
    )
    prompt_logprobs: Annotated[
        int | None,
        Integer(ge=0, le=20),
        Doc("Alternatives to report for each prompt token (no log-probabilities of the prompt)."),
    ] = None
    priority: Annotated[
        int | None,
        Integer(0),
        Doc("Lower values are scheduled first; ties are broken by arrival (0)."),
    ] = None
    timeout: Annotated[
        float | None, Number(gt=0), Doc("Seconds from the submission to the end (no limit).")
    ] = None
    first_token_timeout: Annotated[
        float | None,
        Number(gt=0),
        Doc("Seconds from the submission to the first token (no limit)."),
    ] = None
    inter_token_timeout: Annotated[
        float | None,
        Number(gt=0),
        Doc("Seconds between two tokens, excluding the time of a slow reader (no limit)."),
    ] = None

    @property
    def max_new_tokens(self) -> int | None:
        """The maximum number of completion tokens; None means the rest of the context window."""
        return self.max_tokens


class SamplingKwargs(TypedDict, total=False):
    """The parameters as keyword arguments."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    max_tokens: int | None
    min_tokens: int | None
    ignore_eos: bool | None
    seed: int | None
    prompt_logprobs: int | None
    priority: int | None
    timeout: float | None
    first_token_timeout: float | None
    inter_token_timeout: float | None


#: Every parameter with its range and default, by name.
PARAMETERS: Mapping[str, Number | Integer | Flag] = MappingProxyType(
    {
        name: get_args(annotation)[1]
        for name, annotation in get_type_hints(SamplingParams, include_extras=True).items()
    }
)
#: The parameters that a model's files may set.
MODEL_DEFAULTS = (
    *("temperature", "top_p", "top_k", "min_p"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
)


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(SamplingParams):
    """All options of the core for one sequence; a parameter that is None has its default."""

    logit_bias: tuple[tuple[int, float], ...] = ()  #: Unique token ids, and biases.
    top_logprobs: int | None = None  #: Alternatives to report per token; None: no logprobs.
    stop: tuple[str, ...] = ()  #: Stop strings, which are excluded from the text.
    stop_token_ids: tuple[int, ...] = ()
    suppress_tokens: tuple[int, ...] = ()  #: Token ids that are never generated.
    logits_processors: object = None  #: A `LogitsProcessors`, or None.
    grammar: object = None  #: A grammar that `GrammarCache` compiled, or None.
    #: Whether the sequence is pinned in the prefix cache when it ends normally.
    is_pinned: bool = False
    #: Whether the text of each choice starts without the space of its first token.
    strips_leading_space: bool = False
    #: Seconds of `timeout` and `first_token_timeout` that had passed before the submission.
    elapsed: float = field(default=0, compare=False)

    def resolve(self, defaults: SamplingParams) -> Self:
        """Return a copy with the values of `defaults` for the parameters that are None."""
        chosen: dict[str, Any] = {
            name: getattr(defaults, name) for name in PARAMETERS if getattr(self, name) is None
        }
        return replace(self, **chosen)

    def of_choice(self, choice: int) -> Self:
        """Return the options of a choice, with the seed of the request plus the choice's index.

        Only the first choice computes the log-probabilities of the prompt. The time limits are
        those that remain.
        """
        options = self._with_remaining_time() if self.elapsed else self
        if choice == 0 or (self.seed is None and self.prompt_logprobs is None):
            return options

        # Seeds wrap around at 64 bits.
        seed = self.seed
        if seed is not None:
            seed = (seed + choice + (1 << 63)) % (1 << 64) - (1 << 63)

        return replace(options, seed=seed, prompt_logprobs=None)

    def _with_remaining_time(self) -> Self:
        limits = {
            name: max(seconds - self.elapsed, _MIN_SECONDS)
            for name in ("timeout", "first_token_timeout")
            if (seconds := getattr(self, name)) is not None
        }
        return replace(self, **limits)
