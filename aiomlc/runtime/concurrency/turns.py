"""Short turns of the event loop: work of many tasks is spread over several of them."""

from __future__ import annotations

__all__ = ("Turns", "preparation_turns")

from time import monotonic
from typing import final

from anyio import Lock
from anyio.lowlevel import RunVar, checkpoint

# A turn of the loop lasts for this long and one piece of work; another task waits at most so long.
_TURN_SECONDS = 0.01


@final
class Turns:
    """Limits the time that many tasks together take in one turn of the event loop.

    A task awaits `take` before each piece of work that is not divided any further. The pieces that
    do not begin before the end of a turn are done one by one in the next turns, first come, first
    served.
    """

    __slots__ = ("_end", "_line")

    def __init__(self) -> None:
        self._end = 0.0
        self._line = Lock()

    @classmethod
    def of_loop(cls, variable: RunVar[Turns]) -> Turns:
        """Return the value of a variable of the running event loop, which is set if necessary."""
        turns = variable.get(None)
        if turns is None:
            turns = cls()
            variable.set(turns)

        return turns

    def begin(self) -> None:
        """Let the tasks work that run next, at the beginning of a turn."""
        self._end = monotonic() + _TURN_SECONDS

    def are_over(self) -> bool:
        """Return whether a task must `wait`: the turn is over, or other tasks are waiting."""
        return monotonic() >= self._end or self._line.locked()

    async def wait(self) -> None:
        """Wait in line for a turn that has time."""
        async with self._line:  # If another task has it, taken in a later turn of the event loop.
            self.begin()

    async def take(self) -> None:
        """Be a checkpoint, and wait in line if the turn is over, or others wait."""
        await (self.wait() if self.are_over() else checkpoint())

    async def proceed(self) -> None:
        """Do the same before a further piece of work, which may go before pieces that are first."""
        await (self.wait() if monotonic() >= self._end else checkpoint())


_preparations: RunVar[Turns] = RunVar("_preparations")


def preparation_turns() -> Turns:
    """Return the turns of the running event loop in which requests are validated and submitted."""
    return Turns.of_loop(_preparations)
