"""Formatting of an engine's statistics in Prometheus' text format."""

from __future__ import annotations

__all__ = ("prometheus_text", "untyped_text")

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.statistics import Histogram
from aiomlc.validation.arguments import check_type
from aiomlc.validation.json_values import safe_repr

_LABEL_NAME = re.compile(r"(?!le$)[a-zA-Z_][a-zA-Z0-9_]*")  # `le` is that of histograms' buckets.
_PREFIX = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
# In each table: the metric's name, the field of `CoreStatistics`, the help text.
_COUNTERS = (
    ("prompt_tokens_total", "prompt_tokens", "Tokens of all prompts."),
    ("completion_tokens_total", "completion_tokens", "Tokens of all completions."),
    ("prefill_tokens_total", "prefill_tokens", "Prompt tokens that were computed."),
    ("decode_tokens_total", "decode_tokens", "Completion tokens that were computed."),
    ("draft_tokens_total", "draft_tokens", "Draft tokens that were verified."),
    ("accepted_tokens_total", "accepted_tokens", "Draft tokens that were accepted."),
    ("drafts_total", "verified_drafts", "Drafts that were verified."),
    ("draft_failures_total", "draft_failures", "Failures of the draft model."),
    ("forced_tokens_total", "forced_tokens", "Tokens that a grammar forced."),
    ("forced_seconds_total", "forced_seconds", "Time to compute the tokens that grammars force."),
    ("prefill_seconds_total", "prefill_seconds", "Step time spent on prefill."),
    ("decode_seconds_total", "decode_seconds", "Step time spent on decode."),
    ("steps_total", "steps", "Forward passes."),
    ("preemptions_total", "preemptions", "Sequences that were preempted."),
    ("prefix_cache_hits_total", "prefix_cache_hits", "Sequences that reused cached tokens."),
    ("prefix_cache_tokens_total", "cached_tokens", "Prompt tokens that were found in the cache."),
)
_GAUGES = (
    ("sequences_running", "num_running", "Sequences in the batch."),
    ("sequences_waiting", "num_waiting", "Sequences that wait for a batch row or for pages."),
    ("kv_cache_pages", "total_pages", "Pages of the KV cache."),
    ("kv_cache_pages_free", "free_pages", "Pages of the KV cache that no sequence holds."),
    ("prefix_cache_sequences", "num_recycling", "Finished sequences in the prefix cache."),
    ("prefix_cache_pins", "num_pinned", "Pinned prefixes."),
)
_SUMMARIES = (
    ("decode_step_seconds", "decode_steps", "Time of decode-only steps, by number of sequences."),
    ("verify_step_seconds", "verify_steps", "Time of verification steps, by number of tokens."),
    ("draft_step_seconds", "draft_steps", "Time to draft tokens, by number of sequences."),
)
_HISTOGRAMS = (
    ("queue_time_seconds", "queue_seconds", "From submission to room in the KV cache."),
    ("time_to_first_token_seconds", "first_token_seconds", "From submission to the first token."),
    ("inter_token_latency_seconds", "inter_token_seconds", "Between two tokens of a sequence."),
    ("request_duration_seconds", "request_seconds", "From submission to the end of a sequence."),
    ("request_prompt_tokens", "request_prompt_tokens", "Prompt tokens of a finished sequence."),
    (
        "request_completion_tokens",
        "request_completion_tokens",
        "Completion tokens of a finished sequence.",
    ),
    ("batch_size", "batch_size", "Sequences in a step."),
)
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def prometheus_text(
    statistics: CoreStatistics, labels: Mapping[str, str] | None = None, prefix: str = "aiomlc_"
) -> str:
    """Format statistics in Prometheus' text format, version 0.0.4.

    Serve the text with the content type `text/plain; version=0.0.4; charset=utf-8`.

    Args:
        statistics: The result of `engine.statistics()`.
        labels: Labels of every sample, such as the model's name.
        prefix: The prefix of every metric's name.

    Raises:
        BadRequestError: If an argument has the wrong type, or a name is not one of Prometheus;
            `param` names it.
    """
    check_type("statistics", statistics, CoreStatistics, "the result of engine.statistics()")
    _check_names(labels, prefix)
    common = dict(labels or {})
    lines: list[str] = []
    for kind, table in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for name, field, help_text in table:
            lines += _header(prefix + name, kind, help_text)
            lines.append(_sample(prefix + name, common, getattr(statistics, field)))

    name = f"{prefix}requests_finished_total"
    lines += _header(name, "counter", "Finished sequences, by finish reason.")
    for reason, count in statistics.finished.items():
        lines.append(_sample(name, common | {"finish_reason": reason}, count))

    lines += _speculation_lines(statistics, common, prefix)
    for name, field, help_text in _SUMMARIES:
        lines += _header(prefix + name, "summary", help_text)
        for size, (count, seconds) in getattr(statistics, field).items():
            size_labels = common | {"batch_size": str(size)}
            lines.append(_sample(f"{prefix}{name}_sum", size_labels, seconds))
            lines.append(_sample(f"{prefix}{name}_count", size_labels, count))

    for name, field, help_text in _HISTOGRAMS:
        lines += _header(prefix + name, "histogram", help_text)
        lines += _histogram_lines(prefix + name, common, getattr(statistics, field))

    return "\n".join(lines) + "\n"


def _check_names(labels: Mapping[str, str] | None, prefix: str) -> None:
    check_type("labels", labels, (Mapping, type(None)), "a mapping of strings")
    for name, value in (labels or {}).items():
        check_type("labels", value, str, "a mapping of strings")
        if not isinstance(name, str) or not _LABEL_NAME.fullmatch(name):
            raise BadRequestError(
                f"labels: a name must consist of letters, digits and underscores, not begin with a "
                f"digit, and not be 'le', got {safe_repr(name)}",
                param="labels",
            )

    check_type("prefix", prefix, str, "a string")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise BadRequestError(
            f"prefix: must consist of letters, digits, underscores and colons, and not begin with "
            f"a digit, got {safe_repr(prefix)}",
            param="prefix",
        )


def untyped_text(metrics: Iterable[tuple[str, float]]) -> str:
    """Format metrics of MLC LLM in Prometheus' text format.

    Args:
        metrics: Names and values. A name may end with a label as MLC LLM writes it, without the
            quotes that Prometheus requires: `count{batch_size=2}`.
    """
    lines: list[str] = []
    described: set[str] = set()
    for text, value in metrics:
        name, _, label = text.partition("{")
        if name not in described:
            described.add(name)
            lines += _header(name, "untyped", "As in MLC LLM.")

        key, _, number = label.removesuffix("}").partition("=")
        lines.append(_sample(name, {key: number} if key else {}, value))

    return "".join(f"{line}\n" for line in lines)


def _speculation_lines(
    statistics: CoreStatistics, labels: Mapping[str, str], prefix: str
) -> Iterator[str]:
    name = f"{prefix}speculation_failed"
    yield from _header(name, "gauge", "1 if a failure has disabled speculative decoding.")
    yield _sample(name, labels, statistics.speculation_failure is not None)
    for kind, field in (("draft", "proposed"), ("accepted", "accepted")):
        name = f"{prefix}{kind}_place_tokens_total"
        yield from _header(
            name, "counter", f"{kind.capitalize()} tokens, by position in the draft."
        )
        for number, position in enumerate(statistics.draft_positions, start=1):
            yield _sample(name, {**labels, "place": str(number)}, getattr(position, field))


def _header(name: str, kind: str, help_text: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"


def _histogram_lines(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
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
