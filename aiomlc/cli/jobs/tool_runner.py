"""Run an async function of `aiomlc.tools` with its progress on the terminal."""

from __future__ import annotations

__all__ = ("run_tool",)

import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from aiomlc.cli.terminal.progress import ProgressLine
from aiomlc.runtime.loading.progress import LoadProgress

Result = TypeVar("Result")
_Tool = Callable[[Callable[[LoadProgress], None]], Awaitable[Result]]


def run_tool(tool: _Tool[Result]) -> Result:
    """Return what `tool(on_progress)` returns; Ctrl-C cancels it.

    Raises:
        AiomlcError: If the tool fails.
        KeyboardInterrupt: If it was interrupted.
    """
    return anyio.run(_run, tool)


async def _run(tool: _Tool[Result]) -> Result:
    line = ProgressLine(sys.stderr)
    results: list[Result] = []
    try:
        async with anyio.create_task_group() as tg:
            tg.start_soon(line.run)
            try:
                results.append(await tool(line.show))
            finally:
                line.stop()
            tg.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        first, *others = group.exceptions
        if others:
            raise

        raise first from None

    (result,) = results
    return result
