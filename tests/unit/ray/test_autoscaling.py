from __future__ import annotations

from types import SimpleNamespace

import pytest

from aiomlc.ray.autoscaling import KV_USAGE, LoadPolicy


@pytest.mark.parametrize(
    ("num_requests", "kv_usages", "expected"),
    [
        (0, {}, 0),
        (1, {"a": 0.0}, 1),
        (16, {"a": 0.1}, 1),
        (17, {"a": 0.1}, 2),
        (40, {"a": 0.8, "b": 0.8}, 3),  # By the queue.
        (4, {"a": 0.9}, 2),  # By the KV cache.
        (4, {"a": 0.1, "b": 0.7}, 1),
        (4, {"a": 0.8, "b": 0.8, "c": 0.8}, 3),  # 0.8 + 0.8 + 0.8 is a little more than 2.4.
    ],
)
def test_replicas_follow_the_queue_and_the_kv_cache(
    num_requests: float, kv_usages: dict[str, float], expected: int
) -> None:
    policy = LoadPolicy(target_requests=16, target_kv_usage=0.8)
    context = SimpleNamespace(
        total_num_requests=num_requests, aggregated_metrics={KV_USAGE: kv_usages}
    )

    assert policy(context) == (expected, {})


def test_a_replica_without_a_report_counts_by_its_requests() -> None:
    policy = LoadPolicy(target_requests=2, target_kv_usage=0.5)

    assert policy(SimpleNamespace(total_num_requests=3, aggregated_metrics=None)) == (2, {})
