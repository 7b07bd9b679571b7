"""The engine's counters under upstream's names."""

from __future__ import annotations

__all__ = ("EngineMetrics",)

from typing import final

from aiomlc.runtime.core_protocol import CoreStatistics

# name in the exposition, (kind, help)
_ABOUT = {
    "engine_prefill_time_sum": ("counter", "Seconds spent in steps that prefill."),
    "engine_decode_time_sum": ("counter", "Seconds spent in steps that only decode."),
    "prompt_tokens_sum": ("counter", "Tokens of all prompts."),
    "completion_tokens_sum": ("counter", "Tokens of all completions."),
    "prefill_tokens_sum": ("counter", "Prompt tokens that were computed."),
    "decode_tokens_sum": ("counter", "Completion tokens that were computed."),
    "prefill_tokens_per_s": ("gauge", "Prompt tokens per second of prefill."),
    "decode_tokens_per_s": ("gauge", "Completion tokens per second of decode."),
    "num_running_sequences": ("gauge", "Sequences that have a row in the batch."),
    "num_waiting_sequences": ("gauge", "Sequences that wait for a row or for pages."),
    "kv_cache_total_pages": ("gauge", "Pages of the KV cache."),
    "kv_cache_free_pages": ("gauge", "Pages of the KV cache that no sequence holds."),
    "prefix_cache_recycling_sequences": ("gauge", "Ended sequences in the prefix cache."),
    "prefix_cache_hits_sum": ("counter", "Sequences that began with computed tokens."),
    "prefix_cache_tokens_sum": ("counter", "Tokens that were not computed again."),
    "engine_steps_sum": ("counter", "Forward passes."),
}


@final
class EngineMetrics:
    """A snapshot; `metrics[key]` reads one value, `prometheus_text()` writes all."""

    def __init__(self, statistics: CoreStatistics) -> None:
        values: dict[str, float] = {
            "engine_prefill_time_sum": statistics.prefill_seconds,
            "engine_decode_time_sum": statistics.decode_seconds,
            "prompt_tokens_sum": statistics.prompt_tokens,
            "completion_tokens_sum": statistics.completion_tokens,
            "prefill_tokens_sum": statistics.prefill_tokens,
            "decode_tokens_sum": statistics.decode_tokens,
            "num_running_sequences": statistics.num_running,
            "num_waiting_sequences": statistics.num_waiting,
            "kv_cache_total_pages": statistics.total_pages,
            "kv_cache_free_pages": statistics.free_pages,
            "prefix_cache_recycling_sequences": statistics.num_recycling,
            "prefix_cache_hits_sum": statistics.prefix_cache_hits,
            "prefix_cache_tokens_sum": statistics.cached_tokens,
            "engine_steps_sum": statistics.steps,
        }
        if statistics.prefill_seconds > 0:
            rate = statistics.prefill_tokens / statistics.prefill_seconds
            values["prefill_tokens_per_s"] = rate

        if statistics.decode_seconds > 0:
            values["decode_tokens_per_s"] = statistics.decode_tokens / statistics.decode_seconds

        self.metrics = values

    def __getitem__(self, key: str) -> float:
        return self.metrics[key]

    def __repr__(self) -> str:
        return f"EngineMetrics({self.metrics!r})"

    def prometheus_text(self) -> str:
        """The values in Prometheus' text format."""
        lines = []
        for name, value in self.metrics.items():
            kind, about = _ABOUT[name]
            lines += [f"# HELP aiomlc_{name} {about}", f"# TYPE aiomlc_{name} {kind}"]
            lines.append(f"aiomlc_{name} {value}")

        return "\n".join(lines) + "\n"
