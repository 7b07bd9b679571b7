"""Metrics under MLC LLM's names and in Prometheus' text format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aiomlc.api.observability.metrics import EngineMetrics, request_metrics, usage_extra
from aiomlc.api.observability.prometheus import EngineCollector, prometheus_text
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.statistics import (
    DecodeSteps,
    DraftPosition,
    FinishedRequest,
    Histogram,
    RequestTiming,
)
from aiomlc.testing import FakeCore

IDLE = FakeCore().statistics()
BUSY = replace(
    IDLE,
    num_running=3,
    completion_tokens=41,
    decode_seconds=0.25,
    finished={"stop": 4, "error": 1},
    batch_size=Histogram((1.0, 2.0, 4.0), (5, 0, 2, 1), 20.0),
    decode_steps={1: DecodeSteps(2, 0.5)},
    verify_steps={5: DecodeSteps(4, 1.0)},
    draft_steps={2: DecodeSteps(4, 0.5)},
    forced_seconds=0.125,
    verified_drafts=8,
    draft_positions=(DraftPosition(8, 6), DraftPosition(5, 3)),
    draft_failures=1,
    speculation_failure="out of order",
    last_finished=FinishedRequest(10, 5, 4, RequestTiming(0.5, 1.5, 3.5, 2)),
)


def parse_families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(family: Any, name: str, **labels: str) -> float:  # noqa: ANN401 - it ships no types.
    return next(
        float(sample.value)
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    )


@pytest.mark.parametrize("statistics", [IDLE, BUSY])
def test_prometheus_parses_the_type_and_help_of_every_metric(
    statistics: CoreStatistics,
) -> None:
    families = parse_families(prometheus_text(statistics))

    assert len(families) == 38
    for name, family in families.items():
        assert name.startswith("aiomlc_")
        assert family.type in {"counter", "gauge", "histogram", "summary"}
        assert family.documentation


def test_counters_and_gauges_have_their_values() -> None:
    families = parse_families(prometheus_text(BUSY))

    assert value(families["aiomlc_completion_tokens"], "aiomlc_completion_tokens_total") == 41
    assert value(families["aiomlc_decode_seconds"], "aiomlc_decode_seconds_total") == 0.25
    assert value(families["aiomlc_sequences_running"], "aiomlc_sequences_running") == 3
    finished = families["aiomlc_requests_finished"]
    name = "aiomlc_requests_finished_total"
    assert value(finished, name, finish_reason="stop") == 4
    assert value(finished, name, finish_reason="error") == 1


def test_histogram_buckets_are_cumulative() -> None:
    family = parse_families(prometheus_text(BUSY))["aiomlc_batch_size"]

    buckets = [
        (sample.labels["le"], sample.value)
        for sample in family.samples
        if sample.name.endswith("_bucket")
    ]
    assert buckets == [("1", 5), ("2", 5), ("4", 7), ("+Inf", 8)]
    assert value(family, "aiomlc_batch_size_sum") == 20
    assert value(family, "aiomlc_batch_size_count") == 8


def test_label_values_are_escaped() -> None:
    label = 'a "quoted"\\\nname'
    families = parse_families(prometheus_text(BUSY, {"model": label}, prefix="x_"))

    assert value(families["x_steps"], "x_steps_total", model=label) == IDLE.steps
    buckets = families["x_batch_size"].samples
    assert all(sample.labels["model"] == label for sample in buckets)


def test_a_registry_has_the_metrics_of_several_engines() -> None:
    registry = CollectorRegistry(auto_describe=True)
    read = iter([BUSY])
    registry.register(EngineCollector({"a": lambda: next(read), "b": lambda: IDLE}, prefix="x_"))

    families = parse_families(generate_latest(registry).decode())
    assert len(families) == 38
    assert value(families["x_completion_tokens"], "x_completion_tokens_total", model_name="a") == 41
    assert value(families["x_completion_tokens"], "x_completion_tokens_total", model_name="b") == 0


def test_a_collector_names_its_wrong_argument() -> None:
    odd: Any = [IDLE]
    with pytest.raises(BadRequestError) as caught:
        EngineCollector(odd)
    assert caught.value.param == "engines"
    with pytest.raises(BadRequestError) as caught:
        EngineCollector({}, prefix="1a")
    assert caught.value.param == "prefix"


def test_the_last_request_has_mlc_llms_metrics() -> None:
    assert EngineMetrics(BUSY)["last_finished_request"] == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prefill_tokens": 6,
        "decode_tokens": 4,
        "jump_forward_tokens": 2,
        "end_to_end_latency_s": 3.5,
        "ttft_s": 1.5,
        "prefill_tokens_per_s": 6.0,
        "decode_tokens_per_s": 2.0,
        "inter_token_latency_s": 0.5,
    }
    nothing = EngineMetrics(IDLE)["last_finished_request"]
    assert nothing.keys() == EngineMetrics(BUSY)["last_finished_request"].keys()
    assert set(nothing.values()) == {0}


@pytest.mark.parametrize("statistics", [IDLE, BUSY])
def test_the_text_of_the_metrics_has_mlc_llms_names_as_well(statistics: CoreStatistics) -> None:
    metrics = EngineMetrics(statistics)
    families = parse_families(metrics.prometheus_text())

    assert families.keys() >= parse_families(prometheus_text(statistics)).keys()
    for name, number in metrics.metrics.items():
        if isinstance(number, int | float):
            assert value(families[name], name) == number
    request = "last_finished_request_end_to_end_latency_s"
    assert (
        value(families[request], request)
        == metrics["last_finished_request"]["end_to_end_latency_s"]
    )
    untyped = parse_families(EngineMetrics(metrics.metrics).prometheus_text())
    assert all(family.type == "unknown" for family in untyped.values())


def test_mlc_llms_labels_are_labels() -> None:
    families = parse_families(EngineMetrics(BUSY).prometheus_text())

    name = "decode_time_by_batch_size_count"
    assert value(families[name], name, batch_size="1") == 2
    name = "spec_decode_accept_prob_accept_prob"
    assert value(families[name], name, step="1") == 0.75


def test_a_request_without_tokens_has_no_rates() -> None:
    metrics = request_metrics(FinishedRequest(10, 0, 0, RequestTiming(None, None, 1.0)))

    assert metrics["end_to_end_latency_s"] == 1.0
    assert "ttft_s" not in metrics


def test_the_timings_of_a_requests_sequences_are_merged() -> None:
    timings = [RequestTiming(0.5, 1.5, 2.5, 3), RequestTiming(1.0, 2.0, 3.5, 1)]
    extra = usage_extra(10, 5, 4, timings)

    assert extra is not None
    assert (extra["ttft_s"], extra["end_to_end_latency_s"]) == (1.5, 3.5)
    assert extra["decode_tokens_per_s"] == 2.0
    assert extra["jump_forward_tokens"] == 4
    assert usage_extra(10, 5, 4, []) is None


def test_decode_times_are_grouped_by_batch_size() -> None:
    assert EngineMetrics(BUSY)["decode_time_by_batch_size"] == {
        "mean{batch_size=1}": 0.25,
        "count{batch_size=1}": 2,
    }


def test_speculation_has_mlc_llms_metrics() -> None:
    metrics = EngineMetrics(BUSY)

    assert metrics["spec_decode"] == {
        "draft_count": [8, 8, 5],
        "accept_count": [8, 6, 3],
        "accept_prob": {
            "accept_prob{step=0}": 1.0,
            "accept_prob{step=1}": 0.75,
            "accept_prob{step=2}": 0.6,
        },
        "accept_rate": {"accept_rate{step=1}": 0.75, "accept_rate{step=2}": 0.5},
        "accept_len": {
            "accept_len{step=0}": 1.0,
            "accept_len{step=1}": 1.75,
            "accept_len{step=2}": 2.35,
        },
    }
    assert metrics["draft_time_by_batch_size"] == {
        "mean{batch_size=2}": 0.125,
        "count{batch_size=2}": 4,
    }
    assert metrics["verify_time_by_batch_size"] == {
        "mean{batch_size=5}": 0.25,
        "count{batch_size=5}": 4,
    }
    assert metrics["engine_jump_forward_time_sum"] == 0.125
    assert "spec_decode" not in EngineMetrics(IDLE).metrics


def test_speculation_without_accepted_tokens_has_rates_of_zero() -> None:
    wrong = replace(BUSY, draft_positions=(DraftPosition(8, 0), DraftPosition(5, 0)))

    rates = EngineMetrics(wrong)["spec_decode"]["accept_rate"]
    assert rates == {"accept_rate{step=1}": 0.0, "accept_rate{step=2}": 0.0}


def test_speculation_has_prometheus_metrics() -> None:
    families = parse_families(prometheus_text(BUSY))

    assert value(families["aiomlc_speculation_failed"], "aiomlc_speculation_failed") == 1
    positions = families["aiomlc_accepted_place_tokens"]
    assert value(positions, "aiomlc_accepted_place_tokens_total", place="2") == 3
    steps = families["aiomlc_verify_step_seconds"]
    assert steps.type == "summary"
    assert value(steps, "aiomlc_verify_step_seconds_sum", batch_size="5") == 1.0
    assert value(steps, "aiomlc_verify_step_seconds_count", batch_size="5") == 4


@pytest.mark.parametrize(
    ("labels", "prefix", "param"),
    [
        ({"a-b": "x"}, "aiomlc_", "labels"),
        ({"1bad": "x"}, "aiomlc_", "labels"),
        ({"le": "x"}, "aiomlc_", "labels"),
        ({"": "x"}, "aiomlc_", "labels"),
        ({}, "1a", "prefix"),
        ({}, "a-", "prefix"),
    ],
)
def test_names_that_prometheus_does_not_read_are_refused(
    labels: dict[str, str], prefix: str, param: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        prometheus_text(FakeCore().statistics(), labels, prefix)

    assert caught.value.param == param
