"""The options of an application of Ray Serve."""

from __future__ import annotations

__all__ = ("RayOptions", "Routing")

from dataclasses import dataclass
from typing import Literal, TypeAlias

from aiomlc.errors import BadRequestError

Routing: TypeAlias = Literal["prefix", "balanced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    """The replicas of an application, and the distribution of requests among them.

    Raises:
        BadRequestError: If a value is out of range; `param` names it.
    """

    num_replicas: int = 1  #: Engines; with `max_replicas`, the minimum.
    max_replicas: int | None = None  #: The maximum for autoscaling; None: no autoscaling.
    #: Autoscaling: running and waiting requests that a replica should have.
    target_requests: float = 16.0
    target_kv_usage: float = 0.8  #: Autoscaling: the fraction of a KV cache that should be in use.
    upscale_delay: float = 30.0  #: Autoscaling: seconds of load before replicas are added.
    downscale_delay: float = 600.0  #: Autoscaling: seconds of idleness before one is removed.
    num_cpus: float = 1.0  #: Processors of a replica: what Ray reserves, and the engine's threads.
    #: `prefix`: conversations that begin alike go to the same replica. `balanced`: each request
    #: goes to the less busy one of two random replicas.
    routing: Routing = "prefix"
    #: Requests by which the replica of a prefix may be busier than the least busy replica.
    max_imbalance: int = 16
    max_ongoing_requests: int = 64  #: Requests of a replica; more wait in the ingress.
    max_queued_requests: int = -1  #: Requests that may wait in an ingress (429); -1: no limit.
    num_ingress_replicas: int = 1  #: Processes that receive requests and distribute them.
    #: Retries of a request whose replica was lost before it had any output.
    max_retries: int = 3
    drain_timeout: float = 60.0  #: Seconds for the running requests of a replica that is stopped.
    batch_interval: float = 0.02  #: Seconds between two batches of output of a stream.

    def __post_init__(self) -> None:
        for name, minimum in _MINIMA.items():
            value = getattr(self, name)
            if not value >= minimum:
                raise BadRequestError(f"{name}: must be >= {minimum}, got {value!r}", param=name)

        for name in ("target_requests", "num_cpus"):
            value = getattr(self, name)
            if not value > 0:
                raise BadRequestError(f"{name}: must be > 0, got {value!r}", param=name)

        if not 0 < self.target_kv_usage <= 1:
            raise BadRequestError(
                f"target_kv_usage: must be > 0 and <= 1, got {self.target_kv_usage!r}",
                param="target_kv_usage",
            )

        if self.max_replicas is not None and self.max_replicas < self.num_replicas:
            raise BadRequestError(
                f"max_replicas: must be >= num_replicas ({self.num_replicas}), got "
                f"{self.max_replicas!r}",
                param="max_replicas",
            )

        if self.routing not in ("prefix", "balanced"):
            raise BadRequestError(
                f'routing: must be "prefix" or "balanced", got {self.routing!r}', param="routing"
            )


_MINIMA = {
    "num_replicas": 1,
    "upscale_delay": 0,
    "downscale_delay": 0,
    "max_imbalance": 0,
    "max_ongoing_requests": 1,
    "max_queued_requests": -1,
    "num_ingress_replicas": 1,
    "max_retries": 0,
    "drain_timeout": 0,
    "batch_interval": 0,
}
