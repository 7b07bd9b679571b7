"""The process of `aiomlc batch`."""

from __future__ import annotations

__all__ = ("BatchSettings", "run_batch_process")

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, final

import anyio

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.batch import BatchProgress, BatchSummary, run_batch
from aiomlc.batch.run import DEFAULT_IN_FLIGHT
from aiomlc.cli.terminal.figures import count
from aiomlc.cli.terminal.progress import with_progress
from aiomlc.cli.terminal.standard_streams import write_error
from aiomlc.config import EngineConfig
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.serve.models import model_name

_SUCCESS = 0
_INVALID = 2
_MAX_PRINTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """The arguments of `aiomlc batch`."""

    requests: Path
    answers: Path
    model: str | None
    embedding_model: str | None
    max_in_flight: int | None
    device: str = "auto"
    config: EngineConfig
    backend: Literal["asyncio", "trio"] = "asyncio"


def run_batch_process(settings: BatchSettings) -> int:
    """Answer what is left, print what was done, and return the exit code.

    Raises:
        AiomlcError: If the batch cannot be answered.
        OSError: If a file cannot be opened, read or written.
        KeyboardInterrupt: If it was interrupted; a line says how to continue.
    """
    reporter = _Reporter()
    try:
        summary = anyio.run(
            with_progress,
            sys.stderr,
            partial(_run, settings, reporter),
            backend=settings.backend,
        )
    except KeyboardInterrupt:
        write_error(f"interrupted, {reporter}; the same command answers the rest")
        raise

    _print_summary(summary, settings)
    return _INVALID if summary.num_invalid else _SUCCESS


async def _run(
    settings: BatchSettings, reporter: _Reporter, on_progress: Callable[[LoadProgress], None]
) -> BatchSummary:
    make = partial(AsyncMLCEngine, device=settings.device, on_progress=on_progress)
    config = settings.config
    engine = make(settings.model, mode=config.mode or "local", engine_config=config)
    engines = {model_name(engine): engine}
    if settings.embedding_model is not None:
        encoder = make(settings.embedding_model)
        engines[model_name(encoder)] = encoder

    def report(progress: BatchProgress) -> None:
        on_progress(reporter.add(progress))

    return await run_batch(
        engines,
        settings.requests,
        settings.answers,
        max_in_flight=settings.max_in_flight or DEFAULT_IN_FLIGHT,
        on_progress=report,
    )


@final
class _Reporter:
    """The last progress of a batch, as a text."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None  # When, and what was done then.
        self._last: BatchProgress | None = None

    def __str__(self) -> str:
        if self._last is None:
            return "before the first answer"

        text = f"{self._last.done:,} of {count(self._last.total, 'request')} answered"
        return f"{text}, {self._last.failed:,} failed" if self._last.failed else text

    def add(self, progress: BatchProgress) -> LoadProgress:
        """Take a progress, and return what is shown of it."""
        self._last = progress
        now = time.monotonic()
        if self._first is None:
            self._first = now, progress.done

        start, done = self._first
        seconds = now - start
        rate = f", {(progress.done - done) / seconds:.1f}/s" if seconds > 1 else ""
        fraction = progress.done / progress.total if progress.total else 1.0
        return LoadProgress("load", fraction, f"{self}{rate}")


def _print_summary(summary: BatchSummary, settings: BatchSettings) -> None:
    for line in summary.invalid_lines[:_MAX_PRINTED]:
        write_error(f"{settings.requests} line {line.number}: {line.message}")

    if summary.num_invalid:
        write_error(
            f"{count(summary.num_invalid, 'line')} of {settings.requests} without a custom_id, "
            "and so without an answer"
        )

    earlier = summary.total - summary.written
    text = f"{count(summary.total, 'request')} answered in {settings.answers}"
    text += f", {earlier:,} of them before" * bool(earlier)
    write_error(text + f", {summary.failed:,} failed" * bool(summary.failed))
