"""Work that ends when its client goes away."""

from __future__ import annotations

__all__ = ("run_until_disconnect",)

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import CancelScope, create_task_group
from anyio.abc import TaskGroup
from starlette.types import Receive

T = TypeVar("T")


async def run_until_disconnect(
    receive: Receive, serve: Callable[[TaskGroup], Awaitable[T]]
) -> T | None:
    """Run `serve` and return its result, or None if the client disconnects, which cancels it.

    The body of the request must have been received. Further tasks may be started in the task group
    that `serve` is called with; they are cancelled when it returns.

    Raises:
        Exception: What `serve` raises, not in a group.
    """
    result: T | None = None
    failure: Exception | None = None
    async with create_task_group() as tasks:
        tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
        try:
            result = await serve(tasks)
        except Exception as error:  # noqa: BLE001 - raised again outside of the task group.
            failure = error

        tasks.cancel_scope.cancel()

    if failure is not None:
        raise failure

    return result


async def _cancel_on_disconnect(receive: Receive, scope: CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

    scope.cancel()
