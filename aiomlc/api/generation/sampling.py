"""The options of a sequence: a request's parameters, else the defaults of its model."""

from __future__ import annotations

__all__ = ("SamplingRequest", "sequence_options")

from collections.abc import Mapping

from aiomlc.api.protocol.debug_config import DebugConfig
from aiomlc.api.protocol.generation_config import GenerationConfig
from aiomlc.api.protocol.request import GenerationRequest
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.logits_processors import LogitsProcessors
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.sampling_params import PARAMETERS, SequenceOptions
from aiomlc.validation.json_values import short_repr

SamplingRequest = GenerationRequest | GenerationConfig


def sequence_options(request: SamplingRequest, model: LoadedModel) -> SequenceOptions:
    """Return the options of one sequence, without its grammar.

    Raises:
        BadRequestError: If `logit_bias` has a token that is not in the vocabulary.
    """
    parameters = {name: getattr(request, name) for name in PARAMETERS}
    # The engine generates at least one token, which `CompletionStream` drops.
    parameters["max_tokens"] = 1 if request.max_new_tokens == 0 else request.max_new_tokens
    parameters["prompt_logprobs"] = request.num_prompt_logprobs
    end_token_ids = model.stop_token_ids if request.uses_model_stops else ()
    debug = request.debug_config
    processors = request.logits_processors
    options = SequenceOptions(
        **parameters,
        logit_bias=_logit_bias(request.logit_bias or {}, model.vocab_size),
        top_logprobs=request.num_logprobs,
        stop=tuple(request.stop),
        stop_token_ids=(*end_token_ids, *(request.stop_token_ids or ())),
        suppress_tokens=model.suppress_tokens,
        logits_processors=LogitsProcessors(processors) if processors else None,
        is_pinned=isinstance(debug, DebugConfig) and debug.pinned_system_prompt,
        strips_leading_space=request.starts_text and model.tokenizer.strips_leading_space,
    )
    return options.resolve(model.default_options)


def _logit_bias(logit_bias: Mapping[int, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    for token_id in logit_bias:
        if token_id >= vocab_size:
            raise BadRequestError(
                f"logit_bias: must have token ids in [0, {vocab_size}), got {short_repr(token_id)}",
                param="logit_bias",
            )

    return tuple(logit_bias.items())
