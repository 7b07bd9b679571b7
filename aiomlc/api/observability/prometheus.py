"""An engine's statistics in Prometheus' text format."""

from __future__ import annotations

__all__ = ("prometheus_text",)

from collections.abc import Iterator, Mapping
from itertools import accumulate

from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.statistics import Histogram
from aiomlc.validation.arguments import check_type

# Name, the statistic's own name, help.
_COUNTERS = (
    ("prompt_tokens_total", "prompt_tokens", "Tokens of all prompts."),
    ("completion_tokens_total", "completion_tokens", "Tokens of all completions."),
    ("prefill_tokens_total", "prefill_tokens", "Prompt tokens that were computed."),
    ("decode_tokens_total", "decode_tokens", "Completion tokens that were computed."),
    ("draft_tokens_total", "draft_tokens", "Guessed tokens that were computed."),
    ("accepted_tokens_total", "accepted_tokens", "Guessed tokens that were right."),
    ("drafts_total", "verified_drafts", "Drafts of guessed tokens that were verified."),
    ("draft_failures_total", "draft_failures", "Times that guessing failed."),
    ("forced_tokens_total", "forced_tokens", "Tokens that a grammar forced."),
    ("forced_seconds_total", "forced_seconds", "Time to find what grammars force."),
    ("prefill_seconds_total", "prefill_seconds", "Time of steps, the share of prompts."),
    ("decode_seconds_total", "decode_seconds", "Time of steps, the share of completions."),
    ("steps_total", "steps", "Forward passes."),
    ("preemptions_total", "preemptions", "Sequences that lost their room to others."),
    ("prefix_cache_hits_total", "prefix_cache_hits", "Sequences that began with computed tokens."),
    ("prefix_cache_tokens_total", "cached_tokens", "Tokens that were not computed again."),
)
_GAUGES = (
    ("sequences_running", "num_running", "Sequences that have a row in the batch."),
    ("sequences_waiting", "num_waiting", "Sequences that wait for a row or for pages."),
    ("kv_cache_pages", "total_pages", "Pages of the KV cache."),
    ("kv_cache_pages_free", "free_pages", "Pages of the KV cache that no sequence holds."),
    ("prefix_cache_sequences", "num_recycling", "Ended sequences in the prefix cache."),
    ("prefix_cache_pins", "num_pinned", "Pinned prefixes."),
)
_SUMMARIES = (
    ("decode_step_seconds", "decode_steps", "Steps that only decoded, by their sequences."),
    ("verify_step_seconds", "verify_steps", "Those with guesses, by their tokens."),
    ("draft_step_seconds", "draft_steps", "Time of guessing in a step, by the sequences."),
)
_HISTOGRAMS = (
    ("queue_time_seconds", "queue_seconds", "From submission to room in the KV cache."),
    ("time_to_first_token_seconds", "first_token_seconds", "From submission to the first token."),
    ("inter_token_latency_seconds", "inter_token_seconds", "Between two tokens of a sequence."),
    ("request_duration_seconds", "request_seconds", "From submission to the end of an answer."),
    ("request_prompt_tokens", "request_prompt_tokens", "Tokens of an answered prompt."),
    ("request_completion_tokens", "request_completion_tokens", "Tokens of an answer."),
    ("batch_size", "batch_size", "Sequences in a step."),
)
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def prometheus_text(
    statistics: CoreStatistics, labels: Mapping[str, str] | None = None, prefix: str = "aiomlc_"
) -> str:
    """Write statistics in the text format, version 0.0.4.

    Serve it as `text/plain; version=0.0.4; charset=utf-8`.

    Args:
        statistics: What `engine.statistics()` gave.
        labels: Put on every sample, for instance the model's name.
        prefix: Of every metric's name.

    Raises:
        BadRequestError: an argument is of another type; `param` names it.
    """
    check_type("statistics", statistics, CoreStatistics, "an engine's statistics")
    check_type("labels", labels, (Mapping, type(None)), "a mapping of texts")
    for text in (labels or {}).values():
        check_type("labels", text, str, "a mapping of texts")

    check_type("prefix", prefix, str, "a text")
    common = dict(labels or {})
    lines: list[str] = []
    for kind, table in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for name, field, about in table:
            lines += _heading(prefix + name, kind, about)
            lines.append(_sample(prefix + name, common, getattr(statistics, field)))

    name = f"{prefix}requests_finished_total"
    lines += _heading(name, "counter", "Sequences that ended, by the reason.")
    for reason, count in statistics.finished.items():
        lines.append(_sample(name, common | {"finish_reason": reason}, count))

    lines += _speculation(statistics, common, prefix)
    for name, field, about in _SUMMARIES:
        lines += _heading(prefix + name, "summary", about)
        for size, (count, seconds) in getattr(statistics, field).items():
            sized = common | {"batch_size": str(size)}
            lines.append(_sample(f"{prefix}{name}_sum", sized, seconds))
            lines.append(_sample(f"{prefix}{name}_count", sized, count))

    for name, field, about in _HISTOGRAMS:
        lines += _heading(prefix + name, "histogram", about)
        lines += _buckets(prefix + name, common, getattr(statistics, field))

    return "\n".join(lines) + "\n"


def _speculation(
    statistics: CoreStatistics, labels: Mapping[str, str], prefix: str
) -> Iterator[str]:
    name = f"{prefix}speculation_failed"
    yield from _heading(name, "gauge", "1 where there are no guesses any more, since they failed.")
    yield _sample(name, labels, statistics.speculation_failure is not None)
    for about, of_place in (("draft", "guessed"), ("accepted", "right")):
        name = f"{prefix}{about}_place_tokens_total"
        yield from _heading(name, "counter", f"Tokens {of_place} in a place of their drafts.")
        for number, place in enumerate(statistics.draft_positions, start=1):
            yield _sample(name, {**labels, "place": str(number)}, getattr(place, of_place))


def _heading(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def _buckets(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    bounds = [*map(_number, histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(histogram.counts or (0,)), strict=True):
        yield _sample(f"{name}_bucket", {**labels, "le": bound}, count)

    yield _sample(f"{name}_sum", labels, histogram.sum)
    yield _sample(f"{name}_count", labels, histogram.count)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    if not labels:
        return f"{name} {_number(value)}"

    pairs = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
