"""A progress bar for compiling, converting and loading a model."""

from __future__ import annotations

__all__ = ("ProgressDisplay",)

import time
from typing import TYPE_CHECKING, Self, TextIO, final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from aiomlc.runtime.loading.loaded_model import LoadProgress

# No bar is shown if loading takes less time, to avoid flicker.
_DELAY_SECONDS = 0.4


@final
class ProgressDisplay:
    """A transient progress bar in a terminal, fed by an engine's `on_progress` callback."""

    def __init__(self, output: TextIO, *, delay: float = _DELAY_SECONDS) -> None:
        self._output = output
        self._show_after = time.monotonic() + delay
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def show(self, progress: LoadProgress) -> None:
        """Show progress; may be called from any thread."""
        if not self._output.isatty() or time.monotonic() < self._show_after:
            return

        bar = self._bar or self._create_bar()
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

    def _create_bar(self) -> Progress:
        from rich.console import Console  # Imported here: takes 0.1 s and is rarely needed.
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
