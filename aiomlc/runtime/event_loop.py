"""Which event loop runs here. What an engine wakes must run in the engine's own."""

from __future__ import annotations

__all__ = ("check_loop", "running_loop")

from anyio.lowlevel import current_token

from aiomlc.errors import EngineClosedError


def running_loop() -> object:
    """The identity of the event loop in this thread, of either backend."""
    loop: object = current_token().native_token
    return loop


def check_loop(owner: object) -> None:
    """Refuse to go on in any event loop but the owner.

    Raises:
        EngineClosedError: it is another one.
    """
    if running_loop() is not owner:
        raise EngineClosedError("the engine serves another event loop: open one per loop")
