"""Chats of MLC LLM's API that are answered without the model."""

from __future__ import annotations

__all__ = ("echoed_parameters", "metrics_stream")

from collections.abc import Mapping
from typing import Any

from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.observability.metrics import EngineMetrics
from aiomlc.api.protocol.chat_request import ChatCompletionRequest
from aiomlc.api.session.session import ModelSession

_ECHOED = (
    *("n", "temperature", "top_p", "frequency_penalty", "presence_penalty", "repetition_penalty"),
    *("logprobs", "top_logprobs", "logit_bias", "max_tokens", "seed", "stop_token_ids"),
    *("response_format", "debug_config"),
)


def metrics_stream(
    request: ChatCompletionRequest, session: ModelSession, request_id: str, owner: object
) -> ChatCompletionStream:
    """Return a stream of one chunk, whose `usage.extra` has the metrics of the engine."""
    stream = ChatCompletionStream(
        session.engine.empty_stream(request_id),
        model=request.model or session.model.model_name,
        include_usage=True,
        reports_usage=False,
        make_parser=None,
        logprobs_writer=None,
        write_prompt_logprobs=None,
        owner=owner,
    )
    metrics = EngineMetrics(session.engine.statistics()).metrics
    counts = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
    stream.put_usage({**counts, "extra": metrics})
    return stream


def echoed_parameters(request: ChatCompletionRequest) -> Mapping[str, Any]:
    """Return the parameters of a request by the names of MLC LLM's `GenerationConfig`.

    `mock://echo` reports them in `usage.extra`.
    """
    values = request.model_dump(mode="json", by_alias=True, include=set(_ECHOED))
    values["max_tokens"] = request.max_new_tokens or -1
    return {**values, "n": request.n or 1, "stop_strs": list(request.stop)}
