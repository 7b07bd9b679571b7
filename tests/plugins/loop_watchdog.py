"""A watchdog: a test fails if one turn of the event loop takes too much processor time.

It watches the async tests of the modules that import the fixture `loop_watch`, and only the thread
of their loop, whose processor time does not depend on what else the machine does. A collection of
garbage is not counted: its time grows with everything that the test process has imported.
`@pytest.mark.blocks_loop("the reason")` exempts a test.
"""

from __future__ import annotations

__all__ = ("LoopWatch", "loop_watch")

import gc
from collections.abc import AsyncIterator
from time import thread_time
from typing import Any, Final, final

import pytest
from anyio import create_task_group
from anyio.lowlevel import checkpoint

#: Seconds of processor time that a turn may take.
MAX_TURN: Final = 0.05


@final
class LoopWatch:
    """Measures the longest turn of the running event loop, while `run` runs."""

    def __init__(self) -> None:
        self.longest = 0.0  #: Seconds of processor time, without collections of garbage.
        self._collecting = 0.0  # The start of a collection.
        self._collected = 0.0  # The seconds of all collections in this turn.

    async def run(self) -> None:
        """Take part in every turn of the loop until cancelled."""
        gc.callbacks.append(self._on_collection)
        try:
            while True:
                self._collected = 0.0
                start = thread_time()
                await checkpoint()
                self.longest = max(self.longest, thread_time() - start - self._collected)
        finally:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting = thread_time()
        else:
            self._collected += thread_time() - self._collecting


@pytest.fixture(autouse=True)
async def loop_watch(request: pytest.FixtureRequest) -> AsyncIterator[LoopWatch | None]:
    """Watch the loop of a test, and fail if a turn takes too long."""
    exempt = request.node.get_closest_marker("blocks_loop")
    if exempt is not None and not exempt.args:
        pytest.fail("blocks_loop needs the reason")

    if exempt is not None:
        yield None
        return

    watch = LoopWatch()
    async with create_task_group() as tasks:
        tasks.start_soon(watch.run)
        yield watch
        tasks.cancel_scope.cancel()

    assert watch.longest < MAX_TURN, (
        f"a turn of the event loop took {watch.longest * 1e3:.0f} ms of processor time, at most "
        f"{MAX_TURN * 1e3:.0f} ms are allowed"
    )
