"""A progress bar while a model is compiled, converted and loaded, in a terminal only."""

from __future__ import annotations

__all__ = ("ProgressDisplay",)

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO, final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from aiomlc.runtime.loading.loaded_model import LoadProgress

# A model that loads faster than this shows no bar: it would only flicker.
_PATIENCE_SECONDS = 0.4


@final
class ProgressDisplay:
    """Draws what an engine's `on_progress` reports; nothing remains of it on the screen."""

    def __init__(self, output: TextIO, *, patience: float = _PATIENCE_SECONDS) -> None:
        self._output = output
        self._due = time.monotonic() + patience
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def show(self, progress: LoadProgress) -> None:
        """Take a report; may be called from any thread."""
        if not self._output.isatty() or time.monotonic() < self._due:
            return

        bar = self._bar or self._open()
        if progress.stage not in self._tasks:
            self._tasks[progress.stage] = bar.add_task("", total=None)

        bar.update(
            self._tasks[progress.stage],
            description=progress.message,
            total=None if progress.fraction is None else 1.0,
            completed=progress.fraction,
        )

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _open(self) -> Progress:
        from rich.console import Console  # 0.1 s, and seldom needed.
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(file=self._output),
            transient=True,
        )
        self._bar.start()
        return self._bar
