"""Engines' statistics as metrics of `prometheus_client`."""

from __future__ import annotations

__all__ = ("EngineCollector", "engine_families", "prometheus_text", "to_text", "untyped_families")

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias, final

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.statistics import DecodeSteps, DraftPosition, Histogram
from aiomlc.validation.arguments import check_type
from aiomlc.validation.json_values import safe_repr

_LABEL_NAME = re.compile(r"(?!le$)[a-zA-Z_][a-zA-Z0-9_]*")  # `le` is that of histograms' buckets.
_PREFIX = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_Table: TypeAlias = tuple[tuple[str, str, str], ...]
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
    ("recurrent_state_slots", "total_slots", "Slots for recurrent states and their checkpoints."),
    ("recurrent_state_slots_free", "free_slots", "Slots that no sequence holds."),
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
_Labels: TypeAlias = dict[str, str]
_Sources: TypeAlias = Sequence[tuple[_Labels, CoreStatistics]]
#: The samples of one value: the end of the name, the labels, the number.
_Samples: TypeAlias = Iterator[tuple[str, _Labels, float]]


def _one(value: float) -> _Samples:
    yield "", {}, value


def _is_set(value: str | None) -> _Samples:
    yield "", {}, value is not None


def _by_reason(finished: Mapping[str, int]) -> _Samples:
    for reason, count in finished.items():
        yield "", {"finish_reason": reason}, count


def _by_place(counts: Iterable[int]) -> _Samples:
    for number, count in enumerate(counts, start=1):
        yield "", {"place": str(number)}, count


def _drafted(positions: Sequence[DraftPosition]) -> _Samples:
    return _by_place(position.proposed for position in positions)


def _accepted(positions: Sequence[DraftPosition]) -> _Samples:
    return _by_place(position.accepted for position in positions)


def _summary(steps: Mapping[int, DecodeSteps]) -> _Samples:
    for size, (count, seconds) in steps.items():
        yield "_sum", {"batch_size": str(size)}, seconds
        yield "_count", {"batch_size": str(size)}, count


def _histogram(histogram: Histogram) -> _Samples:
    bounds = [*(repr(bound).removesuffix(".0") for bound in histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(histogram.counts or (0,)), strict=True):
        yield "_bucket", {"le": bound}, count

    yield "_sum", {}, histogram.sum
    yield "_count", {}, histogram.count


_FINISHED = "Finished sequences, by finish reason."
_FAILED = "1 if a failure has disabled speculative decoding."
_PLACES = "tokens, by position in the draft."
_GROUPS: tuple[tuple[str, Callable[[Any], _Samples], _Table], ...] = (
    ("counter", _one, _COUNTERS),
    ("gauge", _one, _GAUGES),
    ("counter", _by_reason, (("requests_finished_total", "finished", _FINISHED),)),
    ("gauge", _is_set, (("speculation_failed", "speculation_failure", _FAILED),)),
    ("counter", _drafted, (("draft_place_tokens_total", "draft_positions", f"Draft {_PLACES}"),)),
    (
        "counter",
        _accepted,
        (("accepted_place_tokens_total", "draft_positions", f"Accepted {_PLACES}"),),
    ),
    ("summary", _summary, _SUMMARIES),
    ("histogram", _histogram, _HISTOGRAMS),
)


@final
class EngineCollector(Collector):
    """The statistics of engines, for a registry of `prometheus_client`:

        prometheus_client.REGISTRY.register(EngineCollector({"pebble": engine.statistics}))

    Args:
        engines: The method `statistics` of each engine, by the value of the label `model_name`.
            The engines must be open when the metrics are read.
        prefix: The prefix of every metric's name.

    Raises:
        BadRequestError: If an argument has the wrong type, or `prefix` cannot begin a name;
            `param` names it.
    """

    def __init__(
        self, engines: Mapping[str, Callable[[], CoreStatistics]], prefix: str = "aiomlc_"
    ) -> None:
        check_type("engines", engines, Mapping, "a mapping of names to methods")
        _check_names(None, prefix)
        self._engines = dict(engines)
        self._prefix = prefix

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering the collector reads no statistics."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all engines."""
        sources = [({"model_name": name}, read()) for name, read in self._engines.items()]
        return engine_families(sources, self._prefix)


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
    return to_text(engine_families([(dict(labels or {}), statistics)], prefix))


def to_text(families: Iterable[Metric]) -> str:
    """Return metrics in Prometheus' text format, version 0.0.4."""
    return generate_latest(_Collected(families)).decode()


def engine_families(sources: _Sources, prefix: str = "aiomlc_") -> Iterator[Metric]:
    """Yield the metrics of engines."""
    for kind, samples, table in _GROUPS:
        for name, field, help_text in table:
            family = _family(prefix + name, kind, help_text)
            for labels, statistics in sources:
                for suffix, own, value in samples(getattr(statistics, field)):
                    family.add_sample(f"{prefix}{name}{suffix}", {**labels, **own}, value)

            yield family


def untyped_families(metrics: Iterable[tuple[str, float]]) -> Iterable[Metric]:
    """Return metrics under MLC LLM's names.

    Args:
        metrics: Names and values. A name may end with a label as MLC LLM writes it, without the
            quotes that Prometheus requires: `count{batch_size=2}`.
    """
    families: dict[str, Metric] = {}
    for text, value in metrics:
        name, _, label = text.partition("{")
        family = families.setdefault(name, _family(name, "untyped", "As in MLC LLM."))
        key, _, number = label.removesuffix("}").partition("=")
        family.add_sample(name, {key: number} if key else {}, value)

    return families.values()


@final
class _Collected(Collector):
    """Metrics that have been collected."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _family(name: str, kind: str, help_text: str) -> Metric:
    """Return a metric without samples; `prometheus_client` adds `_total` to a counter's name."""
    return Metric(name.removesuffix("_total") if kind == "counter" else name, help_text, kind)


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
