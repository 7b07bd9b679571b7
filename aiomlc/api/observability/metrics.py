"""Engine and request metrics under MLC LLM's names."""

from __future__ import annotations

__all__ = (
    "EngineMetrics",
    "mlc_families",
    "prompt_details",
    "request_metrics",
    "usage_counts",
    "usage_extra",
)

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, final

from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.statistics import DecodeSteps, FinishedRequest, RequestTiming

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# The fields of `CoreStatistics` by metric name.
_FIELDS = {
    "engine_prefill_time_sum": "prefill_seconds",
    "engine_decode_time_sum": "decode_seconds",
    "engine_jump_forward_time_sum": "forced_seconds",
    "prompt_tokens_sum": "prompt_tokens",
    "completion_tokens_sum": "completion_tokens",
    "prefill_tokens_sum": "prefill_tokens",
    "decode_tokens_sum": "decode_tokens",
    "jump_forward_tokens_sum": "forced_tokens",
    "num_running_sequences": "num_running",
    "num_waiting_sequences": "num_waiting",
    "kv_cache_total_pages": "total_pages",
    "kv_cache_free_pages": "free_pages",
    "prefix_cache_recycling_sequences": "num_recycling",
    "prefix_cache_hits_sum": "prefix_cache_hits",
    "prefix_cache_tokens_sum": "cached_tokens",
    "draft_tokens_sum": "draft_tokens",
    "accepted_tokens_sum": "accepted_tokens",
    "draft_failures_sum": "draft_failures",
    "engine_steps_sum": "steps",
}


# Before the first request has finished.
_NO_REQUEST: Mapping[str, float] = dict.fromkeys(
    (
        *("prompt_tokens", "completion_tokens", "prefill_tokens", "decode_tokens"),
        *("jump_forward_tokens", "prefill_tokens_per_s", "decode_tokens_per_s"),
        *("end_to_end_latency_s", "ttft_s", "inter_token_latency_s"),
    ),
    0,
)


@final
class EngineMetrics:
    """A snapshot of an engine's metrics.

    `metrics[key]` returns one value; `prometheus_text()` formats all of them.

    Args:
        statistics: The statistics of an engine, or the metrics by name: the `usage.extra` of a chat
            with `debug_config.special_request`.
    """

    def __init__(self, statistics: CoreStatistics | Mapping[str, Any]) -> None:
        self._statistics = None if isinstance(statistics, Mapping) else statistics
        self.metrics: dict[str, Any] = (
            dict(statistics) if isinstance(statistics, Mapping) else _metrics(statistics)
        )

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - numbers, and dicts of numbers.
        return self.metrics[key]

    def __repr__(self) -> str:
        return f"EngineMetrics({self.metrics!r})"

    def prometheus_text(self) -> str:
        """Return the metrics in Prometheus' text format, under MLC LLM's names.

        All statistics of the engine under the names of `prometheus_text` come first.
        """
        from aiomlc.api.observability.prometheus import engine_families, to_text  # 0.2 s.

        own = () if self._statistics is None else engine_families([({}, self._statistics)])
        return to_text(chain(own, mlc_families(self.metrics)))


def mlc_families(metrics: Mapping[str, Any]) -> Iterable[Metric]:
    """Return the metrics of `EngineMetrics.metrics` for Prometheus, under MLC LLM's names."""
    from aiomlc.api.observability.prometheus import untyped_families  # As above.

    return untyped_families(_flatten(metrics))


def _metrics(statistics: CoreStatistics) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(statistics, field) for name, field in _FIELDS.items()}
    if statistics.prefill_seconds > 0:
        values["prefill_tokens_per_s"] = statistics.prefill_tokens / statistics.prefill_seconds

    if statistics.decode_seconds > 0:
        values["decode_tokens_per_s"] = statistics.decode_tokens / statistics.decode_seconds

    if statistics.verified_drafts > 0:
        values["spec_decode"] = _spec_decode(statistics)

    last = statistics.last_finished
    values["last_finished_request"] = dict(_NO_REQUEST) if last is None else request_metrics(last)
    values["decode_time_by_batch_size"] = _by_batch_size(statistics.decode_steps)
    values["draft_time_by_batch_size"] = _by_batch_size(statistics.draft_steps)
    values["verify_time_by_batch_size"] = _by_batch_size(statistics.verify_steps)
    return values


def _flatten(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers by name; MLC LLM joins the names of nested metrics by underscores."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}_")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", value


def request_metrics(request: FinishedRequest) -> dict[str, float]:
    """Return MLC LLM's metrics of a request; times in seconds, rates in tokens per second.

    They are rounded to microseconds and hundredths, as responses carry them.

    The time to first token includes the time in the queue. Decoding is everything after the first
    token.
    """
    timing = request.timing
    decode_tokens = max(0, request.completion_tokens - 1)
    values: dict[str, float] = {
        "prompt_tokens": request.prompt_tokens,
        "completion_tokens": request.completion_tokens,
        "prefill_tokens": request.prompt_tokens - request.cached_tokens,
        "decode_tokens": decode_tokens,
        "jump_forward_tokens": timing.forced_tokens,
        "end_to_end_latency_s": round(timing.total, 6),
    }
    if timing.first_token is None or timing.queue is None:
        return values

    values["ttft_s"] = round(timing.first_token, 6)
    prefill_seconds = timing.first_token - timing.queue
    decode_seconds = timing.total - timing.first_token
    if prefill_seconds > 0:
        values["prefill_tokens_per_s"] = round(values["prefill_tokens"] / prefill_seconds, 2)

    if decode_tokens and decode_seconds > 0:
        values["decode_tokens_per_s"] = round(decode_tokens / decode_seconds, 2)
        values["inter_token_latency_s"] = round(decode_seconds / decode_tokens, 6)

    return values


def usage_counts(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return the counts of OpenAI's `usage`."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def prompt_details(cached_tokens: int, embedded_tokens: Mapping[str, int]) -> dict[str, int]:
    """Return `prompt_tokens_details` of a usage; a prompt without images has none of their tokens.

    Args:
        cached_tokens: Tokens found in the KV cache.
        embedded_tokens: Tokens that are embeddings of images or audio, by their names.
    """
    present = {name: count for name, count in embedded_tokens.items() if count}
    return {"cached_tokens": cached_tokens, **present}


def usage_extra(
    prompt_tokens: int, completion_tokens: int, cached_tokens: int, timings: Sequence[RequestTiming]
) -> dict[str, float] | None:
    """Return MLC LLM's `usage.extra` of a request, or None if there are no timings.

    The timings of a request's sequences are merged: from the start of the first sequence to the
    end of the last.
    """
    if not timings:
        return None

    queues = [timing.queue for timing in timings if timing.queue is not None]
    first_tokens = [timing.first_token for timing in timings if timing.first_token is not None]
    merged = RequestTiming(
        min(queues, default=None),
        min(first_tokens, default=None),
        max(timing.total for timing in timings),
        sum(timing.forced_tokens for timing in timings),
    )
    return request_metrics(FinishedRequest(prompt_tokens, completion_tokens, cached_tokens, merged))


def _spec_decode(statistics: CoreStatistics) -> dict[str, Any]:
    """Return MLC LLM's speculative decoding metrics, by the position of a token in its draft.

    Position 0 is the token of the target model, which every verification step yields.
    `accept_prob` is the fraction of the draft tokens at a position that are accepted,
    `accept_rate` the same given that the preceding token is accepted, and `accept_len` the
    expected number of tokens per step for drafts up to a position.
    """
    target_token = (statistics.verified_drafts, statistics.verified_drafts)
    drafted, accepted = zip(target_token, *statistics.draft_positions, strict=True)
    probabilities = [accepted[i] / drafted[i] for i in range(len(drafted))]
    rates = [
        accepted[i] / accepted[i - 1] if accepted[i - 1] else 0.0 for i in range(1, len(accepted))
    ]
    return {
        "draft_count": list(drafted),
        "accept_count": list(accepted),
        "accept_prob": _by_step("accept_prob", probabilities),
        "accept_rate": _by_step("accept_rate", rates, first=1),
        "accept_len": _by_step("accept_len", accumulate(probabilities)),
    }


def _by_step(name: str, values: Iterable[float], first: int = 0) -> dict[str, float]:
    return {f"{name}{{step={step}}}": value for step, value in enumerate(values, start=first)}


def _by_batch_size(steps: Mapping[int, DecodeSteps]) -> dict[str, float]:
    values: dict[str, float] = {}
    for size, (count, seconds) in steps.items():
        values[f"mean{{batch_size={size}}}"] = seconds / count
        values[f"count{{batch_size={size}}}"] = count

    return values
