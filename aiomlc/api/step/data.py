"""The inputs and outputs of `SyncMLCEngine`, with MLC LLM's names."""

from __future__ import annotations

__all__ = (
    "Data",
    "PromptInput",
    "Request",
    "RequestStreamOutput",
    "SingleRequestStreamOutput",
    "TextData",
    "TokenData",
    "configs_per_prompt",
    "parse_inputs",
    "parse_prompts",
)

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from aiomlc.api.observability.metrics import usage_counts, usage_extra
from aiomlc.api.protocol.generation_config import GenerationConfig
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.core_protocol import Record
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.validation.arguments import check_str, check_token_ids, check_type, wrong_type


@dataclass(frozen=True, slots=True)
class TextData:
    """A part of a prompt as text.

    Raises:
        BadRequestError: If `text` is not a string.
    """

    text: str

    def __post_init__(self) -> None:
        check_str("prompt", self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TokenData:
    """A part of a prompt as token ids.

    Raises:
        BadRequestError: If `token_ids` is not a list of integers.
    """

    token_ids: Sequence[int]

    def __post_init__(self) -> None:
        check_token_ids("prompt", self.token_ids)


Data = TextData | TokenData | ImageData
PromptInput = str | Sequence[int] | Data | Sequence[Data]

_PROMPT_TYPES = "a string, a list of token ids, or TextData, TokenData and ImageData"


class Request(NamedTuple):
    """A request for `add_request`, created by `create_request`."""

    request_id: str
    inputs: tuple[Data, ...]
    generation_config: GenerationConfig

    def check(self) -> None:
        """Require valid fields, since a request can also be created without `create_request`.

        Raises:
            BadRequestError: If a field has the wrong type; `param` names it.
        """
        check_str("request_id", self.request_id)
        parse_inputs(self.inputs)
        check_type(
            "generation_config", self.generation_config, GenerationConfig, "a GenerationConfig"
        )


class SingleRequestStreamOutput(NamedTuple):
    """The output of one choice in a step, or the usage of a finished request.

    `delta_text`, `error` and `prompt_logprob_json_strs` are extensions of MLC LLM's record.
    """

    delta_token_ids: list[int]  #: Without the stop token, as in MLC LLM.
    delta_text: str  #: The text of these tokens, without a stop string.
    finish_reason: str | None  #: "stop", "length", "abort", "error" or "timeout".
    request_final_usage_json_str: str | None  #: OpenAI's usage, in a separate output.
    error: str | None = None  #: The cause of "error"; the limit of "timeout".
    delta_logprob_json_strs: list[str] | None = None  #: OpenAI's entry for each token, as JSON.
    extra_prefix_string: str = ""
    #: An entry for each prompt token but the first, in the first output of the first choice.
    prompt_logprob_json_strs: list[str] | None = None

    @classmethod
    def from_record(
        cls,
        record: Record,
        logprobs: list[str] | None = None,
        prompt_logprobs: list[str] | None = None,
    ) -> Self:
        """Return the output of a record of the core."""
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
    def from_usage(cls, last_records: Sequence[Record]) -> Self:
        """Return the usage of a request from the last records of its choices."""
        # The prompt is counted once, since only the first choice computes it.
        first = min(last_records, key=lambda record: record.sequence_id)
        completion_tokens = sum(record.completion_tokens for record in last_records)
        timings = [record.timing for record in last_records if record.timing is not None]
        counts: dict[str, object] = {
            **usage_counts(first.prompt_tokens, completion_tokens),
            "prompt_tokens_details": {"cached_tokens": first.cached_tokens},
        }
        extra = usage_extra(first.prompt_tokens, completion_tokens, first.cached_tokens, timings)
        if extra is not None:
            counts["extra"] = extra

        return cls([], "", None, json.dumps(counts))


class RequestStreamOutput(NamedTuple):
    """The outputs of one request in a step, one per choice.

    After the last outputs of a request comes one more `RequestStreamOutput`; its only output
    carries the usage of the request.
    """

    request_id: str
    outputs: list[SingleRequestStreamOutput]

    def unpack(self) -> tuple[str, list[SingleRequestStreamOutput]]:
        """Return the request's id, and the output of each choice or the usage."""
        return self.request_id, self.outputs


def parse_prompts(prompts: str | Sequence[int] | Sequence[PromptInput]) -> list[tuple[Data, ...]]:
    """Return the parts of each prompt; `prompts` may also be a single prompt.

    Raises:
        BadRequestError: If `prompts` or a prompt has the wrong type, or a prompt is empty.
    """
    check_type("prompts", prompts, Sequence, "a string, a list of token ids or a list of prompts")
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [parse_inputs(prompts)]

    return [parse_inputs(prompt) for prompt in prompts]


def parse_inputs(prompt: object) -> tuple[Data, ...]:
    """Return the parts of one prompt.

    Raises:
        BadRequestError: If the prompt has the wrong type or is empty.
    """
    if isinstance(prompt, str):
        return (TextData(prompt),)

    if isinstance(prompt, Data):
        return (prompt,)

    if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
        raise wrong_type("inputs", prompt, _PROMPT_TYPES)

    parts = tuple(prompt)
    if not parts:
        raise BadRequestError("No input data is given.", param="inputs")

    if all(isinstance(part, int) for part in parts):
        return (TokenData(parts),)

    if not all(isinstance(part, Data) for part in parts):
        raise BadRequestError(f"inputs must be {_PROMPT_TYPES}", param="inputs")

    return parts


def configs_per_prompt(
    config: GenerationConfig | Sequence[GenerationConfig] | None, count: int
) -> list[GenerationConfig]:
    """Return one config per prompt.

    Raises:
        BadRequestError: If the number of configs differs from the number of prompts, or a config
            has the wrong type.
    """
    if config is None or isinstance(config, GenerationConfig):
        return [config or GenerationConfig()] * count

    if not isinstance(config, Sequence) or not all(
        isinstance(each, GenerationConfig) for each in config
    ):
        raise wrong_type("generation_config", config, "a GenerationConfig or a list of them")

    if len(config) != count:
        raise BadRequestError(
            f"generation_config must have one config per prompt, got {len(config)} for "
            f"{count} prompts",
            param="generation_config",
        )

    return list(config)
