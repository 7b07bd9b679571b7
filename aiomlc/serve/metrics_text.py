"""The metrics of a server in Prometheus' text format."""

from __future__ import annotations

__all__ = ("metrics_text",)

from collections.abc import Iterable, Iterator

from aiomlc.api.observability.metrics import EngineMetrics
from aiomlc.api.observability.prometheus import prometheus_text
from aiomlc.config import PAGE_SIZE
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.serve.context import Context

_PREFIX = "aiomlc_"
# What the endpoint picker of Kubernetes' gateway API inference extension and llm-d read.
_GAUGES = (
    ("num_requests_running", "Sequences in the batch."),
    ("num_requests_waiting", "Sequences that wait for a batch row or for pages."),
    ("kv_cache_usage_perc", "The fraction of the KV cache that is in use, from 0 to 1."),
)


def metrics_text(context: Context) -> str:
    """Return the metrics of a server and of its open models, with the label `model_name`.

    Those of the first model follow under MLC LLM's names, without labels. The gauges that routers
    of requests read have vLLM's names as well.
    """
    statistics = {
        model.name: model.engine.statistics() for model in context.models if model.state == "loaded"
    }
    texts = [_server_text(context), *(_vllm_text(name, each) for name, each in statistics.items())]
    texts += (prometheus_text(each, {"model_name": name}) for name, each in statistics.items())
    for first in list(statistics.values())[:1]:
        families = _families(EngineMetrics(first).prometheus_text())
        texts += (_join(family) for name, family in families if not name.startswith(_PREFIX))

    return _merge(texts)


def _server_text(context: Context) -> str:
    admission = context.admission
    lines = [
        "# HELP aiomlc_http_requests_running POST requests that are being answered.",
        "# TYPE aiomlc_http_requests_running gauge",
        f"aiomlc_http_requests_running {admission.num_running}",
        "# HELP aiomlc_http_draining 1 if new requests are rejected.",
        "# TYPE aiomlc_http_draining gauge",
        f"aiomlc_http_draining {int(admission.is_draining)}",
        "# HELP aiomlc_http_responses_total Responses, by HTTP status; 499: the client went away.",
        "# TYPE aiomlc_http_responses_total counter",
    ]
    for status, count in sorted(context.statuses.items()):
        lines.append(f'aiomlc_http_responses_total{{status="{status}"}} {count}')

    return _join(lines)


def _vllm_text(name: str, statistics: CoreStatistics) -> str:
    used = statistics.total_pages - statistics.free_pages
    values = (
        statistics.num_running,
        statistics.num_waiting,
        used / statistics.total_pages if statistics.total_pages else 0,
    )
    model = _quote(name)
    lines: list[str] = []
    for prefix in ("aiomlc:", "vllm:"):
        for (gauge, help_text), value in zip(_GAUGES, values, strict=True):
            lines += (
                f"# HELP {prefix}{gauge} {help_text}",
                f"# TYPE {prefix}{gauge} gauge",
                f"{prefix}{gauge}{{model_name={model}}} {value}",
            )

    sizes = f'block_size="{PAGE_SIZE}",num_gpu_blocks="{statistics.total_pages}"'
    lines += (
        "# HELP vllm:cache_config_info The sizes of the KV cache.",
        "# TYPE vllm:cache_config_info gauge",
        f"vllm:cache_config_info{{model_name={model},{sizes}}} 1",
    )
    return _join(lines)


def _merge(texts: Iterable[str]) -> str:
    """Join texts so that the samples of a metric follow one header, as the format requires."""
    merged: dict[str, list[str]] = {}
    for text in texts:
        for name, lines in _families(text):
            if name in merged:
                merged[name] += (line for line in lines if not line.startswith("#"))
            else:
                merged[name] = list(lines)

    return "".join(map(_join, merged.values()))


def _families(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each metric's name and its lines, of which the first begins with `# HELP`."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("# HELP ") and lines:
            yield lines[0].split(" ")[2], lines
            lines = []

        lines.append(line)

    if lines:
        yield lines[0].split(" ")[2], lines


def _quote(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'"{escaped}"'


def _join(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
