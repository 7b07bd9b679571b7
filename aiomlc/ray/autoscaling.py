"""The number of replicas that a load needs.

Ray Serve sends this module to its controller by value, where aiomlc may be missing: it imports
nothing of aiomlc.
"""

from __future__ import annotations

__all__ = ("KV_USAGE", "LoadPolicy", "needed_replicas")

import math
from collections.abc import Collection
from typing import Any, final

#: The metric with which a replica reports the fraction of its KV cache that is in use.
KV_USAGE = "kv_cache_usage"


@final
class LoadPolicy:
    """An autoscaling policy of Ray Serve, by queue depth and KV cache use.

    Ray Serve applies the limits, the delays and the factors of its `AutoscalingConfig`.
    """

    def __init__(self, target_requests: float, target_kv_usage: float) -> None:
        self._target_requests = target_requests
        self._target_kv_usage = target_kv_usage

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:  # noqa: ANN401 - Ray's.
        """Return the number of replicas for an `AutoscalingContext`, and no state."""
        metrics = context.aggregated_metrics or {}
        needed = needed_replicas(
            context.total_num_requests,
            metrics.get(KV_USAGE, {}).values(),
            target_requests=self._target_requests,
            target_kv_usage=self._target_kv_usage,
        )
        return needed, {}


def needed_replicas(
    num_requests: float,
    kv_usages: Collection[float],
    *,
    target_requests: float,
    target_kv_usage: float,
) -> int:
    """Return how many replicas bring queues and KV caches down to their targets; 0 if idle.

    Args:
        num_requests: Requests that run or wait, in all replicas and in front of them.
    """
    by_requests = num_requests / target_requests
    by_cache = sum(kv_usages) / target_kv_usage
    # Sums of fractions are not exact: a billionth is no reason for another replica.
    return math.ceil(max(by_requests, by_cache) - 1e-9)
