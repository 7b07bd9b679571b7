"""What goes into `SyncMLCEngine` and what comes out, under upstream's names."""

from __future__ import annotations

__all__ = (
    "Data",
    "Prompt",
    "Request",
    "RequestStreamOutput",
    "SingleRequestStreamOutput",
    "TextData",
    "TokenData",
    "one_config_each",
    "read_inputs",
    "read_prompts",
)

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from aiomlc.api.observability.metrics import usage_extra
from aiomlc.api.protocol.generation_config import GenerationConfig
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.core_protocol import Record
from aiomlc.validation.arguments import check_str, check_token_ids, check_type, wrong_type


@dataclass(frozen=True, slots=True)
class TextData:
    """A text of a prompt.

    Raises:
        BadRequestError: it is none.
    """

    text: str

    def __post_init__(self) -> None:
        check_str("prompt", self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TokenData:
    """Token ids of a prompt.

    Raises:
        BadRequestError: they are none.
    """

    token_ids: Sequence[int]

    def __post_init__(self) -> None:
        check_token_ids("prompt", self.token_ids)


Data = TextData | TokenData
Prompt = str | Sequence[int] | Data | Sequence[Data]


class Request(NamedTuple):
    """A request that `add_request` takes; made by `create_request`."""

    request_id: str
    inputs: tuple[Data, ...]
    generation_config: GenerationConfig

    def check(self) -> None:
        """Refuse what is no request, however it was made.

        Raises:
            BadRequestError: a field is of another type; `param` names it.
        """
        check_str("request_id", self.request_id)
        read_inputs(self.inputs)
        check_type(
            "generation_config", self.generation_config, GenerationConfig, "a GenerationConfig"
        )


class SingleRequestStreamOutput(NamedTuple):
    """What one sequence gained in a step, or what a whole request took when it has ended."""

    delta_token_ids: list[int]
    delta_text: str  #: Ours: the text of these tokens, less a stop string.
    finish_reason: str | None  #: "stop", "length", "abort", "error" or "timeout".
    request_final_usage_json_str: str | None  #: OpenAI's usage, in an output of its own.
    error: str | None = None  #: Ours: why it failed.
    delta_logprob_json_strs: list[str] | None = None  #: OpenAI's entry for each token.
    extra_prefix_string: str = ""
    #: Ours: an entry for each token of the prompt but the first, with the first choice's first.
    prompt_logprob_json_strs: list[str] | None = None

    @classmethod
    def of(
        cls,
        record: Record,
        logprobs: list[str] | None = None,
        prompt_logprobs: list[str] | None = None,
    ) -> Self:
        """What a record of the core says."""
        return cls(
            list(record.token_ids),
            record.text,
            record.finish_reason,
            None,
            record.error,
            logprobs,
            prompt_logprob_json_strs=prompt_logprobs,
        )

    @classmethod
    def of_usage(cls, ends: Sequence[Record]) -> Self:
        """What a request took, by the last records of its sequences."""
        # The prompt counts once, as it was computed once: for the first choice.
        first = min(ends, key=lambda record: record.sequence_id)
        completion_tokens = sum(record.completion_tokens for record in ends)
        timings = [record.timing for record in ends if record.timing is not None]
        counts: dict[str, object] = {
            "prompt_tokens": first.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": first.prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": first.cached_tokens},
        }
        extra = usage_extra(first.prompt_tokens, completion_tokens, first.cached_tokens, timings)
        if extra is not None:
            counts["extra"] = extra

        return cls([], "", None, json.dumps(counts))


class RequestStreamOutput(NamedTuple):
    """What one request gained in a step.

    After the last of a request there is one more, of one output, which has its usage.
    """

    request_id: str
    outputs: list[SingleRequestStreamOutput]

    def unpack(self) -> tuple[str, list[SingleRequestStreamOutput]]:
        """The request's id, and the gain of each of its sequences, or the one usage."""
        return self.request_id, self.outputs


def read_prompts(prompts: str | Sequence[int] | Sequence[Prompt]) -> list[tuple[Data, ...]]:
    """The inputs of each prompt, from whatever form the prompts have.

    Raises:
        BadRequestError: they have none of the forms.
    """
    check_type("prompts", prompts, Sequence, "a text, a list of token ids or a list of prompts")
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [read_inputs(prompts)]

    return [read_inputs(prompt) for prompt in prompts]


def read_inputs(prompt: object) -> tuple[Data, ...]:
    """The inputs of one prompt.

    Raises:
        BadRequestError: there are none, or they are something else.
    """
    if isinstance(prompt, str):
        return (TextData(prompt),)

    if isinstance(prompt, (TextData, TokenData)):
        return (prompt,)

    if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
        raise wrong_type("inputs", prompt, "text, token ids or data")

    parts = tuple(prompt)
    if not parts:
        raise BadRequestError("No input data is given.", param="inputs")

    if all(isinstance(part, int) for part in parts):
        return (TokenData(parts),)

    if not all(isinstance(part, (TextData, TokenData)) for part in parts):
        raise BadRequestError("inputs: a prompt is text, token ids or data", param="inputs")

    return parts


def one_config_each(
    config: GenerationConfig | Sequence[GenerationConfig] | None, count: int
) -> list[GenerationConfig]:
    """A config for each prompt.

    Raises:
        BadRequestError: there are more or fewer configs than prompts, or what is none.
    """
    if config is None or isinstance(config, GenerationConfig):
        return [config or GenerationConfig()] * count

    if not isinstance(config, Sequence) or not all(
        isinstance(one, GenerationConfig) for one in config
    ):
        raise wrong_type("generation_config", config, "a GenerationConfig, or a list of them")

    if len(config) != count:
        raise BadRequestError(
            f"there are {count} prompts and {len(config)} generation configs",
            param="generation_config",
        )

    return list(config)
