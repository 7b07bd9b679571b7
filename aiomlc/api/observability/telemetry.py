"""OpenTelemetry spans, one per request, if the program uses OpenTelemetry."""

from __future__ import annotations

__all__ = ("Operation", "RequestSpan", "start_span")

import sys
import time
from typing import TYPE_CHECKING, Any, Literal, final

from aiomlc.api.generation.sampling import SamplingRequest
from aiomlc.errors import AiomlcError
from aiomlc.runtime.engine.core_protocol import Record

if TYPE_CHECKING:
    from opentelemetry.trace import Span

Operation = Literal["chat", "text_completion"]

# The span's attributes, and the request fields that they record.
_REQUEST_ATTRIBUTES = (
    ("gen_ai.request.temperature", "temperature"),
    ("gen_ai.request.top_p", "top_p"),
    ("gen_ai.request.top_k", "top_k"),
    ("gen_ai.request.presence_penalty", "presence_penalty"),
    ("gen_ai.request.frequency_penalty", "frequency_penalty"),
    ("gen_ai.request.max_tokens", "max_new_tokens"),
    ("gen_ai.request.seed", "seed"),
    ("gen_ai.request.stop_sequences", "stop"),
)


@final
class RequestSpan:
    """The span of one request, a `StreamObserver` of its stream.

    The attributes follow OpenTelemetry's semantic conventions for generative AI.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        self._start = time.perf_counter()
        self._has_first_token = False
        self._last_records: dict[int, Record] = {}  # By choice.

    def on_record(self, record: Record, choice: int) -> None:
        """Note a record of a choice."""
        self._last_records[choice] = record
        if not self._has_first_token and record.token_ids:
            self._has_first_token = True
            seconds = time.perf_counter() - self._start
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)

    def on_end(self, error: AiomlcError | None) -> None:
        """End the span, after the last record, a cancellation, or an error."""
        self._span.set_attributes(self._usage_attributes())
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))

        self._span.end()

    def _usage_attributes(self) -> dict[str, Any]:
        records = [self._last_records[choice] for choice in sorted(self._last_records)]
        if not records:
            return {}

        reasons = [record.finish_reason for record in records if record.finish_reason is not None]
        return {
            "gen_ai.usage.input_tokens": records[0].prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": records[0].cached_tokens,
            "gen_ai.usage.output_tokens": sum(record.completion_tokens for record in records),
            "gen_ai.response.finish_reasons": reasons,
        }


def start_span(
    operation: Operation, model: str, request: SamplingRequest, request_id: str, num_choices: int
) -> RequestSpan | None:
    """Start a request's span as a child of the current span; None if no spans are recorded."""
    # A program that records spans has imported this module; importing it here would be slow.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None

    attributes: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "aiomlc",
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.response.id": request_id,
    }
    if num_choices > 1:
        attributes["gen_ai.request.choice.count"] = num_choices

    for name, field in _REQUEST_ATTRIBUTES:
        value = getattr(request, field)
        if value is not None and value != ():
            attributes[name] = value

    tracer = trace.get_tracer("aiomlc")
    span = tracer.start_span(f"{operation} {model}", attributes=attributes)
    return RequestSpan(span) if span.is_recording() else None
