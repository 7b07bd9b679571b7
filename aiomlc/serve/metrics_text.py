"""The metrics of a server."""

from __future__ import annotations

__all__ = ("metrics_text",)

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)

from aiomlc.api.observability.metrics import EngineMetrics, mlc_families
from aiomlc.api.observability.prometheus import engine_families, to_text
from aiomlc.config import PAGE_SIZE
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.serve.context import Context

_LABEL = ("model_name",)


def metrics_text(context: Context) -> str:
    """Return the metrics of a server and of its open models, with the label `model_name`.

    The first model's metrics follow under MLC LLM's names, without labels. The gauges that routers
    of requests read have vLLM's names as well.
    """
    return to_text(_families(context))


def _families(context: Context) -> Iterator[Metric]:
    models = {
        model.name: model.engine.statistics() for model in context.models if model.state == "loaded"
    }
    yield from _server_families(context)
    yield from _vllm_families(models)
    yield from engine_families([({"model_name": name}, each) for name, each in models.items()])
    for first in list(models.values())[:1]:
        yield from mlc_families(EngineMetrics(first).metrics)


def _server_families(context: Context) -> Iterator[Metric]:
    admission = context.admission
    yield GaugeMetricFamily(
        "aiomlc_http_requests_running",
        "POST requests that are being answered.",
        admission.num_running,
    )
    yield GaugeMetricFamily(
        "aiomlc_http_draining", "1 if new requests are rejected.", admission.is_draining
    )
    responses = CounterMetricFamily(
        "aiomlc_http_responses",
        "Responses, by HTTP status; 499: the client went away.",
        labels=["status"],
    )
    for status, count in sorted(context.statuses.items()):
        responses.add_metric([str(status)], count)

    yield responses


def _vllm_families(models: Mapping[str, CoreStatistics]) -> Iterator[Metric]:
    """Yield what the endpoint picker of Kubernetes' gateway API extension and llm-d read."""
    if not models:
        return

    for prefix in ("aiomlc:", "vllm:"):
        running = GaugeMetricFamily(
            f"{prefix}num_requests_running", "Sequences in the batch.", labels=_LABEL
        )
        waiting = GaugeMetricFamily(
            f"{prefix}num_requests_waiting",
            "Sequences that wait for a batch row or for pages.",
            labels=_LABEL,
        )
        usage = GaugeMetricFamily(
            f"{prefix}kv_cache_usage_perc",
            "The fraction of the KV cache that is in use, from 0 to 1.",
            labels=_LABEL,
        )
        for name, each in models.items():
            running.add_metric([name], each.num_running)
            waiting.add_metric([name], each.num_waiting)
            used = each.total_pages - each.free_pages
            usage.add_metric([name], used / each.total_pages if each.total_pages else 0)

        yield from (running, waiting, usage)

    sizes = GaugeMetricFamily(
        "vllm:cache_config_info",
        "The sizes of the KV cache.",
        labels=[*_LABEL, "block_size", "num_gpu_blocks"],
    )
    for name, each in models.items():
        sizes.add_metric([name, str(PAGE_SIZE), str(each.total_pages)], 1)

    yield sizes
