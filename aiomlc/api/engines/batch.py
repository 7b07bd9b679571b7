"""Many prompts, some at a time, and their answers as they finish."""

from __future__ import annotations

__all__ = ("BatchResult", "run_batch")

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sized,
)
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple, TypeVar

from anyio import create_memory_object_stream, create_task_group
from anyio.streams.memory import MemoryObjectSendStream

from aiomlc.api.protocol.chat import ChatCompletion
from aiomlc.errors import AiomlcError, BadRequestError, RequestError, RequestFailedError
from aiomlc.validation.arguments import wrong_type
from aiomlc.validation.json_values import short_repr

_Prompt = TypeVar("_Prompt")


class BatchResult(NamedTuple):
    """What became of one prompt: an answer, or the error that was this prompt's own."""

    position: int  #: Of the prompt, from 0.
    completion: ChatCompletion | None
    error: AiomlcError | None


@asynccontextmanager
async def run_batch(
    ask: Callable[[_Prompt], Awaitable[ChatCompletion]], prompts: Iterable[_Prompt], limit: int
) -> AsyncIterator[AsyncIterable[BatchResult]]:
    """The outcomes of prompts, in the order in which they come; leaving the scope ends the rest.

    `prompts` is read as far as it is needed.

    Raises:
        BadRequestError: `prompts` are not several, or `limit` is no positive number.
        EngineError: the engine is closed or dead.
    """
    if isinstance(prompts, (str, bytes, Mapping)) or not isinstance(prompts, Iterable):
        raise wrong_type("prompts", prompts, "a list of prompts")

    if type(limit) is not int or limit < 1:
        raise BadRequestError(f"limit is {short_repr(limit)}, not a positive number", param="limit")

    waiting = enumerate(prompts)
    num_workers = min(limit, len(prompts)) if isinstance(prompts, Sized) else limit

    async def work(sender: MemoryObjectSendStream[BatchResult]) -> None:
        with sender:
            for index, prompt in waiting:
                await sender.send(await _outcome(ask, index, prompt))

    sender, receiver = create_memory_object_stream[BatchResult](limit)
    try:
        with receiver, ExitStack() as senders:
            async with create_task_group() as tasks:
                with sender:
                    for _ in range(num_workers):
                        # Closed here too: a worker may be cancelled before it begins.
                        own = senders.enter_context(sender.clone())
                        tasks.start_soon(work, own)

                yield receiver
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        cause = _cause(group)
        raise cause from cause.__cause__


async def _outcome(
    ask: Callable[[_Prompt], Awaitable[ChatCompletion]], index: int, prompt: _Prompt
) -> BatchResult:
    try:
        return BatchResult(index, await ask(prompt), None)
    except (RequestError, RequestFailedError) as error:
        return BatchResult(index, None, error)


def _cause(group: BaseExceptionGroup) -> BaseException:
    """The one exception of a group, or the group; the engine's end, told by each worker, is one."""
    first, *others = group.exceptions
    is_one = not others or all(isinstance(error, AiomlcError) for error in group.exceptions)
    return first if is_one else group
