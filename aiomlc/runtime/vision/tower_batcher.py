"""Batches of a vision tower: the images of concurrent requests share forward passes, and the rows
of an image are computed once.

There is no batching task. A caller that finds the tower idle runs it on the images of all waiting
callers, up to a budget. A cancelled caller leaves at once; what runs for it ends in its thread.
"""

from __future__ import annotations

__all__ = ("BATCH_TOKENS", "CACHE_BYTES", "EmbeddedImage", "Tower", "TowerBatcher")

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

from anyio import CapacityLimiter, Lock, to_thread
from anyio.lowlevel import RunVar, checkpoint

from aiomlc.errors import AiomlcError, RequestFailedError
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.vision.image_processor import ImageProcessor, ProcessedImage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH_TOKENS: Final = 4096  #: Of a forward pass; a larger image runs alone.
CACHE_BYTES: Final = 64 << 20  #: Of embedded images that are kept for later requests.


class Tower(Protocol):
    """A compiled tower."""

    def forward(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return embedded rows of the inputs of several images. Blocks; thread-safe."""
        ...


class EmbeddedImage(NamedTuple):
    """An image as a prompt contains it."""

    replacement: str  #: The text in place of the placeholder.
    rows: NDArray[np.float32]  #: In place of the embeddings of its image tokens.
    grid: tuple[int, int, int] | None


@dataclass(slots=True, eq=False)
class _Job:
    """An image that callers wait for."""

    image: ImageData
    num_callers: int = 0
    result: EmbeddedImage | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.result is not None or self.error is not None

    def outcome(self) -> EmbeddedImage:
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
class TowerBatcher:
    """One tower shared by concurrent callers. Used in one event loop after the other.

    Args:
        tower: The tower, which runs in a worker thread, one batch at a time.
        processor: What makes its inputs, in the same thread.
        newline: The row for -1 in `ProcessedImage.rows`; None if there is none.
        cache_bytes: Limit of the rows that are kept for later requests.
    """

    def __init__(
        self,
        tower: Tower,
        processor: ImageProcessor,
        newline: NDArray[np.float32] | None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.num_images: int = 0  #: Images computed so far.
        self.num_batches: int = 0
        self._tower = tower
        self._processor = processor
        self._newline = newline
        self._cache = _ImageCache(cache_bytes)
        self._jobs: dict[bytes, _Job] = {}  # By the digests of images.
        self._turns: RunVar[_Turns] = RunVar("_turns")
        self._tower_lock = threading.Lock()  # A thread may outlive the event loop of its callers.

    def __repr__(self) -> str:
        return f"<TowerBatcher {len(self._jobs)} waiting images>"

    async def run(self, images: Sequence[ImageData]) -> list[EmbeddedImage]:
        """Return the images as a prompt contains them.

        Raises:
            BadRequestError: If the model cannot read an image.
            RequestFailedError: If the tower failed, or its outputs are not finite.
        """
        await checkpoint()
        turns = self._turns_of_loop()
        unique = {image.digest: image for image in images}
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

        results = {job.image.digest: job.outcome() for job in jobs}
        return [found[image.digest] or results[image.digest] for image in images]

    def _turns_of_loop(self) -> _Turns:
        turns = self._turns.get(None)
        if turns is None:
            turns = _Turns(Lock(), CapacityLimiter(1))
            self._turns.set(turns)
        return turns

    def _join(self, image: ImageData) -> _Job:
        job = self._jobs.setdefault(image.digest, _Job(image))
        job.num_callers += 1
        return job

    def _leave(self, job: _Job) -> None:
        job.num_callers -= 1
        if not job.num_callers:
            del self._jobs[job.image.digest]

    def _run_batch(self) -> None:
        """Compute waiting images. Every one of them that is taken has a result or an error."""
        with self._tower_lock:
            self._compute(self._next_batch())

    def _compute(self, batch: Mapping[_Job, ProcessedImage]) -> None:
        if not batch:
            return

        try:
            results = self._forward(list(batch.values()))
        except Exception as error:  # noqa: BLE001 - raised to the callers that wait.
            for job in batch:
                job.error = _as_ours(error)
            return

        self.num_batches += 1
        self.num_images += len(batch)
        for job, result in zip(batch, results, strict=True):
            if _are_finite(result.rows):
                self._cache.put(job.image.digest, result)
                job.result = result
            else:
                job.error = RequestFailedError("the vision tower's outputs are not finite")

    def _next_batch(self) -> dict[_Job, ProcessedImage]:
        """Return the images of the next batch, processed, up to the budget."""
        batch: dict[_Job, ProcessedImage] = {}
        budget = BATCH_TOKENS
        waiting = [job for job in list(self._jobs.values()) if not job.is_done]
        for job in waiting:
            try:
                image = self._processor.process(job.image)
            except Exception as error:  # noqa: BLE001 - raised to the callers that wait.
                job.error = _as_ours(error)
                continue

            budget -= _num_tokens(image)
            if batch and budget < 0:
                break

            batch[job] = image
        return batch

    def _forward(self, images: Sequence[ProcessedImage]) -> list[EmbeddedImage]:
        import numpy as np

        rows = self._tower.forward(_concatenated(images))
        ends = np.cumsum([len(image.inputs["order"]) for image in images])[:-1]
        return [
            EmbeddedImage(image.replacement, self._arranged(part, image), image.grid)
            for image, part in zip(images, np.split(rows, ends), strict=True)
        ]

    def _arranged(self, rows: NDArray[np.float32], image: ProcessedImage) -> NDArray[np.float32]:
        """Return a copy of an image's rows in the order of its image tokens."""
        if image.rows is None:
            return rows.copy()

        if self._newline is not None:
            import numpy as np

            rows = np.concatenate([rows, self._newline[np.newaxis]])
        return rows[image.rows]


@final
class _ImageCache:
    """Embedded images by digest, of which the least recently used leave. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._images: OrderedDict[bytes, EmbeddedImage] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: bytes) -> EmbeddedImage | None:
        with self._lock:
            if (image := self._images.get(digest)) is not None:
                self._images.move_to_end(digest)
            return image

    def put(self, digest: bytes, image: EmbeddedImage) -> None:
        """Keep an image, unless it is larger than the whole cache."""
        with self._lock:
            if digest in self._images or image.rows.nbytes > self._max_bytes:
                return

            self._images[digest] = image
            self._bytes += image.rows.nbytes
            while self._bytes > self._max_bytes:
                self._bytes -= self._images.popitem(last=False)[1].rows.nbytes


def _are_finite(rows: NDArray[np.float32]) -> bool:
    import numpy as np  # Imported late, as below: servers start without it.

    return bool(np.isfinite(rows).all())


def _are_done(jobs: Sequence[_Job]) -> bool:
    return all(job.is_done for job in jobs)


def _num_tokens(image: ProcessedImage) -> int:
    return int(image.inputs["patches"].shape[0])


def _concatenated(images: Sequence[ProcessedImage]) -> dict[str, NDArray[Any]]:
    """Return the inputs of all images, whose tokens `order` counts from the first image on."""
    first = images[0].inputs
    if len(images) == 1:
        return first

    import numpy as np

    starts = np.cumsum([0, *map(_num_tokens, images)])
    joined = {}
    for name, value in first.items():
        parts = [image.inputs[name] for image in images]
        if name == "order":
            pairs = zip(parts, starts[:-1], strict=True)
            parts = [part + np.int32(start) for part, start in pairs]
        is_axes = name == "positions" and value.ndim > 1
        joined[name] = np.ascontiguousarray(np.concatenate(parts, axis=-1 if is_axes else 0))
    return joined


def _as_ours(error: Exception) -> Exception:
    if isinstance(error, AiomlcError | MemoryError):
        return error

    failure = RequestFailedError(f"the vision tower failed: {error}")
    failure.__cause__ = error
    return failure
