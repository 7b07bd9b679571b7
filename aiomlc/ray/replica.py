"""One replica: an engine, and the HTTP application over it."""

from __future__ import annotations

__all__ = ("Replica",)

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import final

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.config import EngineConfig, Mode
from aiomlc.errors import EngineClosedError, EngineDeadError
from aiomlc.ray.autoscaling import KV_USAGE
from aiomlc.ray.exchange import AppExchange, AppRequest, ResponseBatch
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.serve.app import create_app
from aiomlc.serve.models import ServedModel, model_name
from aiomlc.serve.options import ServerOptions


@final
class Replica:
    """The class of Ray Serve's deployment; its methods are called through a handle.

    Ray Serve calls `check_health` before it sends requests, and then again and again; it calls
    `__del__` when a replica that it has stopped has no running requests, or `drain_timeout` has
    passed.

    Args:
        num_threads: Threads of the engine, unless `engine_config` has a number.
        batch_interval: Seconds between two batches of a response.
    """

    def __init__(
        self,
        model: str | None,
        mode: Mode,
        engine_config: EngineConfig | None,
        server_options: ServerOptions | None,
        num_threads: int,
        batch_interval: float,
    ) -> None:
        config = engine_config or EngineConfig()
        if config.num_threads is None:
            config = replace(config, num_threads=num_threads)

        self._engine = AsyncMLCEngine(model, mode=mode, engine_config=config)
        self._served = ServedModel(model_name(self._engine), self._engine)
        self._app = create_app({self._served.name: self._engine}, server_options)
        self._batch_interval = batch_interval

    async def stream(self, request: AppRequest) -> AsyncGenerator[ResponseBatch]:
        """Answer an HTTP request; closing the generator cancels it."""
        exchange = AppExchange(self._app, request, interval=self._batch_interval)
        exchange.start()
        try:
            is_last = False
            while not is_last:
                batch = await exchange.receive_batch()
                is_last = batch.is_last
                yield batch
        finally:
            exchange.disconnect()

    async def check_health(self) -> None:
        """Open the model if it is not open.

        Raises:
            EngineDeadError: If the engine has failed: Ray Serve replaces the replica.
            ModelLoadError: If the model cannot be opened.
        """
        await self._app.open()
        if self._served.state in ("dead", "closed"):
            raise EngineDeadError(f"the engine of {self._served.name} is {self._served.state}")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the metric for `LoadPolicy`."""
        try:
            statistics = self._engine.statistics()
        except EngineClosedError:
            return {KV_USAGE: 0.0}

        used = statistics.total_pages - statistics.free_pages
        return {KV_USAGE: used / statistics.total_pages if statistics.total_pages else 0.0}

    def statistics(self) -> CoreStatistics:
        """Return a snapshot of the engine's counters.

        Raises:
            EngineClosedError: If the engine is not open.
        """
        return self._engine.statistics()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)  # The constructor may have failed.
        if engine is not None:
            engine.terminate()
