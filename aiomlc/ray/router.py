"""Ray Serve's request router for prefixes.

Ray Serve sends this module to the processes that route requests. It imports Ray.
"""

from __future__ import annotations

__all__ = ("PrefixRouter",)

from typing import TYPE_CHECKING, Any

from aiomlc.ray.exchange import AppRequest
from aiomlc.ray.prefix import rank_replicas

if TYPE_CHECKING:  # Ray need not be installed.

    class RequestRouter:
        """The part of Ray's class that is used here."""

        replica_queue_len_cache: Any  #: Has `get`, which returns the requests of a replica.

else:
    from ray.serve.request_router import RequestRouter


class PrefixRouter(RequestRouter):
    """Sends requests whose prompts begin alike to the same replica, while it is not too busy."""

    def initialize_state(self, max_imbalance: int) -> None:
        """Take the arguments of `RequestRouterConfig`."""
        self._max_imbalance = max_imbalance

    async def choose_replicas(
        self,
        candidate_replicas: list[Any],
        pending_request: Any = None,  # noqa: ANN401 - Ray's.
    ) -> list[list[Any]]:
        """Return groups of replicas, the preferred one first; a full one is passed over."""
        key = None
        if pending_request is not None:
            # If all replicas are full, wait before the next attempt.
            pending_request.routing_context.should_backoff = True
            request = next(iter(pending_request.args), None)
            key = request.prefix_key if isinstance(request, AppRequest) else None

        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        lengths = self.replica_queue_len_cache
        loads = {name: lengths.get(replica.replica_id) or 0 for name, replica in replicas.items()}
        groups = rank_replicas(key, loads, max_imbalance=self._max_imbalance)
        return [[replicas[name] for name in group] for group in groups]
