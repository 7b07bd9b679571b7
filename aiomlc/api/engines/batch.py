"""Concurrent completion of many prompts, with results in the order in which they finish."""

from __future__ import annotations

__all__ = ("BatchResult", "complete_many")

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sized,
)
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, final

from anyio import create_memory_object_stream, create_task_group
from anyio.streams.memory import MemoryObjectSendStream

from aiomlc.api.generation.overload_retries import OverloadRetries
from aiomlc.api.protocol.chat import ChatCompletion
from aiomlc.api.protocol.message_params import MessageLike
from aiomlc.api.protocol.request import with_extra_body
from aiomlc.errors import (
    AiomlcError,
    BadRequestError,
    EngineOverloadedError,
    RequestError,
    RequestFailedError,
)
from aiomlc.runtime.concurrency.misuse import AsyncScopeFirst
from aiomlc.validation.arguments import wrong_type
from aiomlc.validation.json_values import short_repr

_Prompt = str | Iterable[MessageLike]


class BatchResult(NamedTuple):
    """The result of one prompt: a completion, or the error of its request."""

    position: int  #: The index of the prompt.
    completion: ChatCompletion | None
    error: AiomlcError | None


def complete_many(
    create: Callable[..., Awaitable[ChatCompletion]],
    is_idle: Callable[[], bool],
    prompts: Iterable[_Prompt],
    limit: int,
    options: Mapping[str, Any],
) -> AbstractAsyncContextManager[AsyncIterable[BatchResult]]:
    """Return a scope with the results of many chats, in the order in which they finish.

    Leaving the scope cancels the remaining requests.

    Args:
        prompts: Conversations. A string is a conversation of one user message. An iterator is
            advanced only when a request starts.

    Raises:
        BadRequestError: If `stream` or `request_id` is set; on entering the scope, if `prompts` is
            not a collection of prompts, or `limit` is not a positive integer.
        EngineError: While iterating, if the engine is closed or dead.
    """
    fields = with_extra_body(options)
    if fields.get("stream"):
        raise BadRequestError("stream: not supported by generate_many", param="stream")

    if fields.get("request_id") is not None:
        raise BadRequestError(
            "request_id: not supported by generate_many, whose requests need different ids",
            param="request_id",
        )

    async def complete(prompt: _Prompt) -> ChatCompletion:
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]

        return await retries.run(partial(create, messages=prompt, **options), is_idle)

    retries = OverloadRetries()

    return _BatchScope(_run_batch(complete, prompts, limit))


@final
class _BatchScope(AsyncScopeFirst, AbstractAsyncContextManager[AsyncIterable[BatchResult]]):
    """The scope of a batch."""

    _scope_example = "async with engine.generate_many(...) as results:"

    def __init__(self, scope: AbstractAsyncContextManager[AsyncIterable[BatchResult]]) -> None:
        self._scope = scope

    async def __aenter__(self) -> AsyncIterable[BatchResult]:
        return await self._scope.__aenter__()

    async def __aexit__(self, *exc_info: Any) -> bool | None:  # noqa: ANN401 - passed on.
        return await self._scope.__aexit__(*exc_info)


@asynccontextmanager
async def _run_batch(
    complete: Callable[[_Prompt], Awaitable[ChatCompletion]],
    prompts: Iterable[_Prompt],
    limit: int,
) -> AsyncIterator[AsyncIterable[BatchResult]]:
    if isinstance(prompts, (str, bytes, Mapping)) or not isinstance(prompts, Iterable):
        raise wrong_type("prompts", prompts, "a list of prompts")

    if type(limit) is not int or limit < 1:
        raise BadRequestError(
            f"limit must be a positive integer, got {short_repr(limit)}", param="limit"
        )

    numbered_prompts = enumerate(prompts)
    num_workers = min(limit, len(prompts)) if isinstance(prompts, Sized) else limit

    async def work(sender: MemoryObjectSendStream[BatchResult]) -> None:
        with sender:
            for index, prompt in numbered_prompts:
                await sender.send(await _complete(complete, index, prompt))

    sender, receiver = create_memory_object_stream[BatchResult](limit)
    try:
        with receiver, ExitStack() as senders:
            async with create_task_group() as tasks:
                with sender:
                    for _ in range(num_workers):
                        # The stack closes the clone of a worker that is cancelled before it starts.
                        worker_sender = senders.enter_context(sender.clone())
                        tasks.start_soon(work, worker_sender)

                yield receiver
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        cause = _root_cause(group)
        raise cause from cause.__cause__


async def _complete(
    complete: Callable[[_Prompt], Awaitable[ChatCompletion]], index: int, prompt: _Prompt
) -> BatchResult:
    try:
        return BatchResult(index, await complete(prompt), None)
    except (RequestError, RequestFailedError, EngineOverloadedError) as error:
        return BatchResult(index, None, error)


def _root_cause(group: BaseExceptionGroup) -> BaseException:
    """Return the only exception of a group, else the group.

    If the engine ends, every worker raises an error for the same cause; they count as one.
    """
    first, *others = group.exceptions
    is_single = not others or all(isinstance(error, AiomlcError) for error in group.exceptions)
    return first if is_single else group
