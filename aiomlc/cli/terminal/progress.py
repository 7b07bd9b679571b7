"""The progress line while a model is downloaded, compiled, converted and loaded."""

from __future__ import annotations

__all__ = ("ProgressLine", "run_with_progress", "with_progress")

import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TextIO, TypeVar, final

import anyio
from anyio import create_task_group, sleep

from aiomlc.cli.terminal.status_line import StatusLine, can_move_cursor
from aiomlc.runtime.loading.progress import LoadProgress

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

# The line appears only if loading takes longer, to avoid flicker.
_DELAY_SECONDS = 0.4
_TICK_SECONDS = 0.1


async def with_progress(output: TextIO, function: Callable[..., Awaitable[T]]) -> T:
    """Return what `function(on_progress=...)` returns; show its progress on `output` meanwhile."""
    line = ProgressLine(output)
    results: list[T] = []
    try:
        async with create_task_group() as tasks:
            tasks.start_soon(line.run)
            try:
                results.append(await function(on_progress=line.show))
            finally:
                line.stop()
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:  # The function raised it; the line raises none.
            raise group.exceptions[0] from None

        raise

    return results[0]


def run_with_progress(function: Callable[..., Awaitable[T]]) -> T:
    """Return what `function(on_progress=...)` returns, with its progress on standard error.

    Raises:
        KeyboardInterrupt: If it was interrupted by Ctrl-C, which cancels it.
    """
    return anyio.run(with_progress, sys.stderr, function)


@final
class ProgressLine:
    """The current work with a bar or the time so far, at the bottom of a terminal.

    Nothing is written to a file or a pipe. A terminal that cannot move its cursor, or is to have no
    escape sequences (`NO_COLOR`), gets a line for each kind of work.

    Args:
        output: The stream for the line.
        delay: The time in seconds until it appears.
        previous: A line that is shown until then.
    """

    def __init__(
        self,
        output: TextIO,
        *,
        delay: float = _DELAY_SECONDS,
        previous: StatusLine | None = None,
    ) -> None:
        self._output = output
        self._previous = StatusLine(output) if previous is None else previous
        self._delay = delay
        self._progress = LoadProgress("load", None, "opening the model")
        self._drawing: _Drawing | None = None
        self._is_running = True

    def show(self, progress: LoadProgress) -> None:
        """Set what the line shows from the next tick on; may be called from any thread."""
        self._progress = progress

    async def run(self) -> None:
        """Draw the line until `stop` is called."""
        if not self._output.isatty():
            return

        await sleep(self._delay)
        if self._is_running:
            self._drawing = _drawing(self._output)
            self._previous.erase()
        while self._is_running and self._drawing is not None:
            self._drawing.draw(self._progress)
            await sleep(_TICK_SECONDS)

    def stop(self) -> None:
        """Remove the line; must be called in the thread that draws it."""
        self._is_running = False
        self._previous.erase()
        if self._drawing is not None:
            self._drawing.erase()


class _Drawing(Protocol):
    def draw(self, progress: LoadProgress) -> None: ...

    def erase(self) -> None: ...


def _drawing(output: TextIO) -> _Drawing:
    # Bars need escape sequences, without colors too.
    if not can_move_cursor(output) or os.environ.get("NO_COLOR"):
        return _Lines(output)

    return _Bars(output)


@final
class _Bars:
    """A bar of rich."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._bar: Progress | None = None
        self._kind: tuple[str, bool] | None = None

    def draw(self, progress: LoadProgress) -> None:
        """Draw the bar, or another one if there is other work."""
        kind = (progress.stage, progress.total_bytes is not None)
        description = progress.message.replace("[", "\\[")
        done, total = _extent(progress)
        if self._bar is None or kind != self._kind:
            self.erase()
            self._bar, self._kind = _bar(self._output, has_bytes=kind[1]), kind
            self._bar.add_task(description, completed=int(done), total=total)
            self._bar.start()
        task = self._bar.task_ids[0]
        self._bar.update(task, description=description, completed=done, total=total)
        self._bar.refresh()

    def erase(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _extent(progress: LoadProgress) -> tuple[float, float | None]:
    """Return what is done and what is to be done, in bytes if they are known."""
    if progress.total_bytes is not None:
        return progress.done_bytes or 0, progress.total_bytes

    return (0, None) if progress.fraction is None else (progress.fraction, 1)


def _bar(output: TextIO, *, has_bytes: bool) -> Progress:
    from rich import progress  # Imported late: it takes a tenth of a second.
    from rich.console import Console

    name = progress.TextColumn("{task.description}")
    bar = progress.BarColumn(bar_width=20)
    figures: tuple[progress.ProgressColumn, ...]
    if has_bytes:
        figures = (
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(compact=True),
        )
    else:
        figures = (progress.TaskProgressColumn(), progress.TimeElapsedColumn())
    console = Console(file=output, force_terminal=True)
    return progress.Progress(
        name, bar, *figures, console=console, auto_refresh=False, transient=True
    )


@final
class _Lines:
    """A line for each kind of work."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._printed = ""

    def draw(self, progress: LoadProgress) -> None:
        """Write a line, if there is other work."""
        if progress.message != self._printed:
            self._printed = progress.message
            self._output.write(f"{progress.message}\n")
            self._output.flush()

    def erase(self) -> None:
        """Write nothing: the lines stay."""
