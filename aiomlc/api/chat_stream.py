"""A chat completion as a stream of OpenAI's chunks."""

from __future__ import annotations

__all__ = ("ChatCompletionStream",)

import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self, final

from anyio.lowlevel import checkpoint

from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.runtime.stream import Delta, DeltaStream


@final
class ChatCompletionStream:
    """The chunks of an answer's choices. Leaving it early, in any way, cancels the request.

    An async iterator for one task, and an async context manager; it works with
    `contextlib.aclosing`. When the reader is slow, the chunks it missed come merged as one.
    """

    def __init__(
        self,
        deltas: DeltaStream,
        *,
        model: str,
        num_choices: int,
        include_usage: bool,
        owner: object,
    ) -> None:
        self._deltas = deltas
        self._include_usage = include_usage
        self._owner = owner  # The engine serves as long as somebody reads.
        self._ready: deque[ChatCompletionChunk] = deque()
        self._num_choices = num_choices
        self._started: set[int] = set()
        self._last_deltas: dict[int, Delta] = {}  # Of the choices that ended.
        self._common: dict[str, Any] = {
            "id": deltas.request_id,
            "created": int(time.time()),
            "model": model,
        }
        if include_usage:
            self._common["usage"] = None

    def __repr__(self) -> str:
        return f"<ChatCompletionStream of {self._deltas!r}>"

    @property
    def request_id(self) -> str:
        """The id of every chunk, and what `abort` takes."""
        return self._deltas.request_id

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatCompletionChunk:
        if self._ready:
            await checkpoint()

        while not self._ready:
            self._ready.extend(self._chunks(await self._deltas.__anext__()))

        return self._ready.popleft()

    async def receive_batch(self) -> list[ChatCompletionChunk]:
        """Wait for a chunk, and take all that are there; an empty list is the end."""
        try:
            batch = [await self.__anext__()]
        except StopAsyncIteration:
            return []

        batch.extend(self._ready)
        self._ready.clear()
        return batch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Close the stream."""
        self.close()
        await checkpoint()

    def close(self) -> None:
        """Cancel what is unfinished. Never blocks, so it is safe in a cancelled scope."""
        self._ready.clear()
        self._deltas.close()

    def _chunks(self, delta: Delta) -> Iterator[ChatCompletionChunk]:
        index = delta.choice
        if index not in self._started:
            self._started.add(index)
            yield self._chunk(index, {"role": "assistant", "content": ""})

        if delta.text:
            yield self._chunk(index, {"content": delta.text})

        if delta.finish_reason is None:
            return

        yield self._chunk(index, {}, delta.finish_reason)
        self._last_deltas[index] = delta
        if self._include_usage and len(self._last_deltas) == self._num_choices:
            yield ChatCompletionChunk.model_validate(
                {**self._common, "choices": [], "usage": self._usage()}
            )

    def _usage(self) -> dict[str, Any]:
        # The prompt counts once, as it was computed once: for the first choice.
        first = self._last_deltas[0]
        completion_tokens = sum(delta.completion_tokens for delta in self._last_deltas.values())
        return {
            "prompt_tokens": first.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": first.prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": first.cached_tokens},
        }

    def _chunk(
        self, index: int, delta: dict[str, str], finish_reason: str | None = None
    ) -> ChatCompletionChunk:
        # One call that validates a dict is twice as fast as a constructor per nested model.
        choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
        return ChatCompletionChunk.model_validate({**self._common, "choices": [choice]})
