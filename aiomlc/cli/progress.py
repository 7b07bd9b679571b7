"""A line that moves while a model is compiled, converted and loaded."""

from __future__ import annotations

__all__ = ("ProgressLine",)

import os
import time
from itertools import cycle
from typing import TYPE_CHECKING, TextIO, final

from anyio import sleep

if TYPE_CHECKING:
    from aiomlc.runtime.loading.loaded_model import LoadProgress

# The line appears only if loading takes longer, to avoid flicker.
_DELAY_SECONDS = 0.4
_TICK_SECONDS = 0.1
_SPINNER = "|/-\\"


@final
class ProgressLine:
    """The current work with a percentage and the time so far, at the bottom of a terminal.

    Nothing is written to a file or a pipe. A terminal that cannot move its cursor gets a line for
    each kind of work.

    Args:
        output: The stream for the line.
        delay: The time in seconds until it appears.
    """

    def __init__(self, output: TextIO, *, delay: float = _DELAY_SECONDS) -> None:
        self._output = output
        self._delay = delay
        self._start = time.monotonic()
        self._work = "opening the model"
        self._percentage = ""
        self._printed = ""  # On a terminal that cannot move its cursor.
        self._spinner = cycle(_SPINNER)
        self._width = 0  # Of the line that is shown.
        self._is_running = True

    def show(self, progress: LoadProgress) -> None:
        """Set what the line shows from the next tick on; may be called from any thread."""
        fraction = progress.fraction
        self._percentage = "" if fraction is None else f", {fraction:.0%}"
        self._work = progress.message

    async def run(self) -> None:
        """Draw the line until `stop` is called."""
        if not self._output.isatty():
            return

        await sleep(self._delay)
        draw = self._print_change if os.environ.get("TERM", "dumb") == "dumb" else self._spin
        while self._is_running:
            draw()
            await sleep(_TICK_SECONDS)

    def stop(self) -> None:
        """Remove the line; must be called in the thread that draws it."""
        self._is_running = False
        if self._width:
            self._draw("")

    def _spin(self) -> None:
        seconds = time.monotonic() - self._start
        self._draw(f"{next(self._spinner)} {self._work}{self._percentage}, {seconds:.1f} s")

    def _print_change(self) -> None:
        if self._work != self._printed:
            self._printed = self._work
            self._output.write(f"{self._work}\n")
            self._output.flush()

    def _draw(self, text: str) -> None:
        """Write a line over the previous one."""
        text = text[: self._columns() - 1]
        padding = " " * (self._width - len(text))
        self._output.write(f"\r{text}{padding}" + ("" if text else "\r"))
        self._output.flush()
        self._width = len(text)

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._output.fileno()).columns or 80
        except (OSError, ValueError):
            return 80
