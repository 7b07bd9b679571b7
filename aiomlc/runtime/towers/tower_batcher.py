"""Batches of a tower: the images or recordings of concurrent requests share forward passes, and the
rows of each are computed once.

There is no batching task. A caller that finds the tower idle runs it on the items of all waiting
callers, up to a budget. A cancelled caller leaves at once; what runs for it ends in its thread.
"""

from __future__ import annotations

__all__ = ("BATCH_TOKENS", "CACHE_BYTES", "TowerBatcher")

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, final

from anyio import CapacityLimiter, Lock, to_thread
from anyio.lowlevel import RunVar, checkpoint

from aiomlc.errors import AiomlcError, EngineClosedError, RequestFailedError
from aiomlc.runtime.towers.piece_model import Digested
from aiomlc.runtime.towers.tower_reader import EmbeddedItem, TowerReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH_TOKENS: Final = 4096  #: Of a forward pass; a larger item runs alone.
CACHE_BYTES: Final = 64 << 20  #: Of embedded items that are kept for later requests.

Item = TypeVar("Item", bound=Digested)
Inputs = TypeVar("Inputs")


@dataclass(slots=True, eq=False)
class _Job(Generic[Item]):
    """An item that callers wait for."""

    item: Item
    num_callers: int = 0
    result: EmbeddedItem | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.result is not None or self.error is not None

    def outcome(self) -> EmbeddedItem:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error

        assert self.result is not None
        return self.result


class _Turns(NamedTuple):
    """The lock and the limiter of the callers of one event loop."""

    lock: Lock
    limiter: CapacityLimiter


@final
class TowerBatcher(Generic[Item, Inputs]):
    """One tower shared by concurrent callers. Used in one event loop after the other.

    Args:
        reader: The tower, which runs in a worker thread, one batch at a time.
        cache_bytes: Limit of the rows that are kept for later requests.
    """

    def __init__(self, reader: TowerReader[Item, Inputs], cache_bytes: int = CACHE_BYTES) -> None:
        self.num_items: int = 0  #: Images or recordings computed so far.
        self.num_batches: int = 0
        self._reader: TowerReader[Item, Inputs] | None = reader
        self._cache = _ItemCache(cache_bytes)
        self._jobs: dict[bytes, _Job[Item]] = {}  # By the digests of items.
        self._turns: RunVar[_Turns] = RunVar("_turns")
        self._tower_lock = threading.Lock()  # A thread may outlive the event loop of its callers.

    def __repr__(self) -> str:
        return f"<TowerBatcher {len(self._jobs)} waiting items>"

    async def run(self, items: Sequence[Item]) -> list[EmbeddedItem]:
        """Return the items as a prompt contains them.

        Raises:
            BadRequestError: If the model cannot read an item.
            EngineClosedError: If the batcher was closed before all items were computed.
            RequestFailedError: If the tower failed, or its outputs are not finite.
        """
        await checkpoint()
        turns = self._turns_of_loop()
        unique = {item.digest: item for item in items}
        found = {digest: self._cache.get(digest) for digest in unique}
        jobs = [self._join(unique[digest]) for digest, cached in found.items() if cached is None]
        try:
            while not _are_done(jobs):
                async with turns.lock:
                    if not _are_done(jobs):
                        # A batch of a caller that left may still run: the limiter waits for it.
                        await to_thread.run_sync(
                            self._run_batch, limiter=turns.limiter, abandon_on_cancel=True
                        )
        finally:
            for job in jobs:
                self._leave(job)

        results = {job.item.digest: job.outcome() for job in jobs}
        return [found[item.digest] or results[item.digest] for item in items]

    def close(self) -> None:
        """Release the tower; waiting callers get `EngineClosedError`. Thread-safe."""
        self._reader = None

    def _turns_of_loop(self) -> _Turns:
        turns = self._turns.get(None)
        if turns is None:
            turns = _Turns(Lock(), CapacityLimiter(1))
            self._turns.set(turns)
        return turns

    def _join(self, item: Item) -> _Job[Item]:
        job = self._jobs.setdefault(item.digest, _Job(item))
        job.num_callers += 1
        return job

    def _leave(self, job: _Job[Item]) -> None:
        job.num_callers -= 1
        if not job.num_callers:
            del self._jobs[job.item.digest]

    def _run_batch(self) -> None:
        """Compute waiting items. Every one of them that is taken has a result or an error."""
        with self._tower_lock:
            if (reader := self._reader) is not None:
                self._compute(reader, self._next_batch(reader))
                return

            for job in self._waiting():
                job.error = EngineClosedError()

    def _waiting(self) -> list[_Job[Item]]:
        return [job for job in list(self._jobs.values()) if not job.is_done]

    def _compute(
        self, reader: TowerReader[Item, Inputs], batch: Mapping[_Job[Item], Inputs]
    ) -> None:
        if not batch:
            return

        try:
            results = reader.embed(list(batch.values()))
        except Exception as error:  # noqa: BLE001 - raised to the callers that wait.
            for job in batch:
                job.error = _as_ours(error, reader.tower_name)
            return

        self.num_batches += 1
        self.num_items += len(batch)
        for job, result in zip(batch, results, strict=True):
            if _are_finite(result.rows):
                self._cache.put(job.item.digest, result)
                job.result = result
            else:
                problem = f"the {reader.tower_name}'s outputs are not finite"
                job.error = RequestFailedError(problem)

    def _next_batch(self, reader: TowerReader[Item, Inputs]) -> dict[_Job[Item], Inputs]:
        """Return the items of the next batch, processed, up to the budget."""
        batch: dict[_Job[Item], Inputs] = {}
        budget = BATCH_TOKENS
        for job in self._waiting():
            try:
                inputs = reader.process(job.item)
            except Exception as error:  # noqa: BLE001 - raised to the callers that wait.
                job.error = _as_ours(error, reader.tower_name)
                continue

            budget -= reader.num_tokens(inputs)
            if batch and budget < 0:
                break

            batch[job] = inputs
        return batch


@final
class _ItemCache:
    """Embedded items by digest, of which the least recently used leave. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._items: OrderedDict[bytes, EmbeddedItem] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: bytes) -> EmbeddedItem | None:
        with self._lock:
            if (item := self._items.get(digest)) is not None:
                self._items.move_to_end(digest)
            return item

    def put(self, digest: bytes, item: EmbeddedItem) -> None:
        """Keep an item, unless it is larger than the whole cache."""
        with self._lock:
            if digest in self._items or item.rows.nbytes > self._max_bytes:
                return

            self._items[digest] = item
            self._bytes += item.rows.nbytes
            while self._bytes > self._max_bytes:
                self._bytes -= self._items.popitem(last=False)[1].rows.nbytes


def _as_ours(error: Exception, tower_name: str) -> Exception:
    if isinstance(error, AiomlcError | MemoryError):
        return error

    failure = RequestFailedError(f"the {tower_name} failed: {error}")
    failure.__cause__ = error
    return failure


def _are_finite(rows: NDArray[np.float32]) -> bool:
    import numpy as np  # Imported late: servers start without it.

    return bool(np.isfinite(rows).all())


def _are_done(jobs: Sequence[_Job[Item]]) -> bool:
    return all(job.is_done for job in jobs)
